#!/usr/bin/env bash
# Makes a repository with one commit, on the branch main, of a source tree as it is now, then runs a command.
# Usage: repository.sh <source> <folder> <command>...
# Exits with 77, which CTest reports as skipped, if the source is no clone, so that nothing lists its files.
set -euo pipefail
source=$1 folder=$2
[[ -e $source/.git ]] || { echo "skipped: $source is no clone"; exit 77; }

rm -rf "${folder:?}"
git init -q -b main "$folder"
cd "$source"
# The clone may be another user's, as in a container that runs as root: it is to be read, and its own scripts run already.
git -c safe.directory='*' ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
  if [[ -f $file ]]; then cp --parents "$file" "$folder"; fi
done
git -C "$folder" add -A -f
git -C "$folder" -c user.name=Reel -c user.email=reel@localhost -c commit.gpgSign=false -c core.hooksPath=/dev/null \
  commit -q -m "The tree as it is"
exec "${@:3}"
