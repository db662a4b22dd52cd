#!/usr/bin/env bash
# Fetches the jars of Apache Kafka into target/kafka, where tests find them: 54 MB, once.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
jars=$root/target/kafka
cmp -s "$here/pom.xml" "$jars/installed.xml" && exit 0
"$root/scripts/debian.sh" java openjdk-17-jdk-headless
"$root/scripts/debian.sh" mvn maven
echo "fetching the jars of Apache Kafka for the tests"
rm -rf "$jars"
mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies -DoutputDirectory="$jars"
cp "$here/pom.xml" "$jars/installed.xml"
