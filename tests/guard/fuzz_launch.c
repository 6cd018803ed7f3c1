/* libFuzzer target for the launch parser: `make guard-sanitize` runs it for a moment where clang has libFuzzer.
 * The first byte chooses between a whole description and the terms of a prepared task. */
#include "../../src/outlast/guard/guard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void free_strings(struct strings *list, bool copies) {
    for (size_t i = 0; copies && i < list->count; i++) free(list->items[i]);
    free(list->items);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct launch launch;
    if (!size) return 0;
    char *copy = malloc(size - 1); /* exactly as long: the parser must not look behind it */
    if (size > 1) memcpy(copy, data + 1, size - 1);
    memset(&launch, 0, sizeof launch);
    if (data[0] & 1) parse_launch(&launch, copy, size - 1);
    else parse_terms(&launch, copy, size - 1);
    free_strings(&launch.args, false);
    free_strings(&launch.env, false);
    free_strings(&launch.on_end, true);
    free_strings(&launch.remove, true);
    free_strings(&launch.cgroups, true);
    free(copy);
    return 0;
}
