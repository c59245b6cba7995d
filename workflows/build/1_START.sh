# Works in an empty build-example/ of the folder. A run that starts at TEST works in the folder itself.
rm -rf build-example
mkdir build-example
echo '<reset cd="build-example">TEST</reset>'
