/* A libnvidia-ml.so.1 for machines without a GPU: it answers as the file $FAKE_NVML says at the time of each call.
   Its lines: `init CODE`, `hang FUNCTION`, `crash FUNCTION`, and one for each GPU (tests/hosts/gpus.py writes them). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 64
#define LOST 15
#define NONE 10 /* NVML_ERROR_TIMEOUT */

typedef unsigned long long wide;
typedef struct { unsigned pid; wide used; unsigned instance, compute_instance; } user;
static struct {
    char name[64];
    int lost;
    unsigned busy, degrees, clock, most_clock, lanes, ecc, xid, users;
    wide used, total, throttled;
    user user[8];
} gpus[MOST];
static unsigned count, taken[MOST];
static int init_code;

static int enter(const char *function, void *device) {
    char line[1024], word[128];
    FILE *file = fopen(getenv("FAKE_NVML"), "r");
    for (count = 0, init_code = 0; file && fgets(line, sizeof line, file);) {
        if (sscanf(line, "hang %127s", word) == 1 && !strcmp(word, function)) for (;;) pause();
        if (sscanf(line, "crash %127s", word) == 1 && !strcmp(word, function)) abort();
        sscanf(line, "init %d", &init_code);
        if (strncmp(line, "gpu ", 4)) continue;
        int at = 0, more;
        sscanf(line, "gpu %63s %d %u %llu %llu %u %u %u %u %llx %u %u%n", gpus[count].name, &gpus[count].lost,
               &gpus[count].busy, &gpus[count].used, &gpus[count].total, &gpus[count].degrees, &gpus[count].clock,
               &gpus[count].most_clock, &gpus[count].lanes, &gpus[count].throttled, &gpus[count].ecc,
               &gpus[count].xid, &at);
        user *next = gpus[count].user;
        for (; at && sscanf(line + at, " %u:%llu%n", &next->pid, &next->used, &more) == 2; at += more) next++;
        gpus[count].users = next - gpus[count].user;
        count++;
    }
    if (file) fclose(file);
    return device && gpus[(wide)device - 1].lost ? LOST : 0;
}

#define OF(device) gpus[(wide)(device) - 1]
#define FIGURE(function, type, parameters, value) \
    int function parameters { int code = enter(#function, device); if (!code) *figure = (type)(value); return code; }

int nvmlInit_v2(void) { enter("nvmlInit_v2", 0); return init_code; }
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "Driver/library version mismatch"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "550.54"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *found) { enter("nvmlDeviceGetCount_v2", 0); *found = count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(wide)(index + 1);
    return enter("nvmlDeviceGetHandleByIndex_v2", *device);
}
int nvmlDeviceGetName(void *device, char *text, unsigned size) {
    snprintf(text, size, "%s", OF(device).name);
    return enter("nvmlDeviceGetName", device);
}
FIGURE(nvmlDeviceGetUtilizationRates, unsigned, (void *device, unsigned *figure), OF(device).busy)
FIGURE(nvmlDeviceGetTemperature, unsigned, (void *device, int sensor, unsigned *figure), OF(device).degrees)
FIGURE(nvmlDeviceGetClockInfo, unsigned, (void *device, int kind, unsigned *figure), OF(device).clock)
FIGURE(nvmlDeviceGetMaxClockInfo, unsigned, (void *device, int kind, unsigned *figure), OF(device).most_clock)
FIGURE(nvmlDeviceGetCurrPcieLinkWidth, unsigned, (void *device, unsigned *figure), OF(device).lanes)
FIGURE(nvmlDeviceGetCurrentClocksThrottleReasons, wide, (void *device, wide *figure), OF(device).throttled)
FIGURE(nvmlDeviceGetTotalEccErrors, wide, (void *device, int kind, int since, wide *figure), OF(device).ecc)
int nvmlDeviceGetMemoryInfo(void *device, wide *memory) {
    int code = enter("nvmlDeviceGetMemoryInfo", device);
    memory[0] = OF(device).total, memory[1] = OF(device).total - OF(device).used, memory[2] = OF(device).used;
    return code;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *room, user *users) {
    int code = enter("nvmlDeviceGetComputeRunningProcesses_v3", device);
    memcpy(users, OF(device).user, OF(device).users * sizeof *users);
    *room = OF(device).users;
    return code;
}
int nvmlEventSetCreate(void **set) { *set = gpus; return 0; }
int nvmlDeviceRegisterEvents(void *device, wide kinds, void *set) { return kinds == 8 ? 0 : 2; }
int nvmlEventSetWait_v2(void *set, struct { void *device; wide kind, data; unsigned instances[2]; } *event, unsigned ms) {
    enter("nvmlEventSetWait_v2", 0);
    for (unsigned at = 0; at < count; at++)
        if (gpus[at].xid && gpus[at].xid != taken[at]) {
            taken[at] = gpus[at].xid;
            event->device = (void *)(wide)(at + 1), event->kind = 8, event->data = gpus[at].xid;
            return 0;
        }
    return NONE;
}
