#!/bin/sh
# The Python of Spark's workers and planners: PENSTOCK_PYTHON, without Spark's own zips on its path.
#
# Spark puts the zips of its Python code before all that is installed. A zip holds no compiled
# modules, so every process that Spark starts would compile pyspark anew: a second of processor time.
set -f
path=
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
    */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
    *) path=$path${path:+:}$entry ;;
    esac
done
unset IFS
PYTHONPATH=$path exec "$PENSTOCK_PYTHON" "$@"
