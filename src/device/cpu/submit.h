// device/cpu/submit.h -- runs launches on the threads of a pool.
#ifndef LB_DEVICE_CPU_SUBMIT_H
#define LB_DEVICE_CPU_SUBMIT_H

#include "device/device.h"

// See device.h. Both return when all work has finished, and never fail.
lb_status lb_cpu_submit(lb_stream *q, const lb_exec *exec, const lb_launch *l);
lb_status lb_cpu_submit_sequence(lb_stream *q, const lb_sequence *s);

#endif
