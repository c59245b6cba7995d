#!/bin/bash
until [ "$(ls reviews | wc -l)" -eq "$(ls sections | wc -l)" ]; do
    sleep 0.05
done
echo "<reset input=\"$(cat reviews/*)\">SUMMARY.md</reset>"
