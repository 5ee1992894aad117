#!/bin/sh
# Prints the places of the fields of CUPTI's records that the recorder reads, by the C compiler and
# NVIDIA's headers: cupti_offsets.sh RELEASE FOLDER... >> cupti_offsets.txt
#
# The folders are searched for headers: the first has cupti_activity.h (`include` of the wheels
# nvidia-cuda-cupti-cu11, -cu12 and nvidia-cuda-cupti), the others cuda.h and crt/host_defines.h
# (nvidia-cuda-runtime and nvidia-cuda-crt, or nvidia-cuda-nvcc-cu12).
set -eu
release=$1
shift
header=$1/cupti_activity.h
includes=
for folder; do
    includes="$includes -I$folder"
done
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
for kind in CONCURRENT_KERNEL MEMCPY MEMSET MEMCPY2 EXTERNAL_CORRELATION; do
    # The comment above a kind names the structure of its records.
    structure=$(grep -E -B7 "^ *CUPTI_ACTIVITY_KIND_$kind *=" "$header" | grep -oE 'CUpti_Activity[A-Za-z0-9]+' | tail -1)
    case $kind in
    CONCURRENT_KERNEL) fields='start end deviceId contextId streamId correlationId name gridX blockX' ;;
    MEMSET) fields='start end deviceId contextId streamId correlationId bytes' ;;
    EXTERNAL_CORRELATION) fields='externalKind externalId correlationId' ;;
    *) fields='start end deviceId contextId streamId correlationId bytes copyKind' ;;
    esac
    {
        printf '#include <stddef.h>\n#include <stdio.h>\n#include <cuda.h>\n#include <cupti_version.h>\n#include <cupti_activity.h>\n'
        printf 'int main(void) {\n'
        printf 'printf("%s %%d %s=%%d %s size=%%zu", CUPTI_API_VERSION, CUPTI_ACTIVITY_KIND_%s, sizeof(%s));\n' \
            "$release" "$kind" "$structure" "$kind" "$structure"
        for field in $fields; do
            printf 'printf(" %s=%%zu", offsetof(%s, %s));\n' "$field" "$structure" "$field"
        done
        printf 'puts("");\nreturn 0;\n}\n'
    } >"$work/offsets.c"
    # shellcheck disable=SC2086
    "${CC:-cc}" -w $includes -o "$work/offsets" "$work/offsets.c"
    "$work/offsets"
done
