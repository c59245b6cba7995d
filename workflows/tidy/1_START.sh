# Makes a folder tidy-example/ with files to sort and works there. A run that starts at PROPOSE leaves this out.
set -e
rm -rf tidy-example
mkdir tidy-example
cd tidy-example
for file in 'invoice 2025-03.pdf' 'Invoice_2026_01.pdf' IMG_2041.jpg 'IMG_2042 (1).jpg' notes.txt setup.iso; do
    echo "$file" > "$file"
done
echo '<reset cd="tidy-example">PROPOSE</reset>'
