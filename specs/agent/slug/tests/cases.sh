# Every case is a title and the name that is expected of it.
failed=0
check() {
    got=$(sh slug.sh "$1")
    if [ "$got" != "$2" ]; then
        echo "title '$1': expected '$2', got '$got'"
        failed=1
    fi
}

check 'Hello World' hello-world
check 'A  B--C' a-b-c
check '  (draft) 2 ' draft-2
check 'already-fine' already-fine

for title in '' '...'; do
    sh slug.sh "$title" 2>/dev/null
    if [ $? -ne 2 ]; then
        echo "title '$title': expected exit code 2"
        failed=1
    fi
done
exit $failed
