// tests/mirror/mirror.h -- a test device with separate memory, without a GPU.
//
// It forwards to another device, and returns addresses that equal no host
// pointer and fault when the host dereferences them: the address of the inner
// device's memory plus a constant beyond the address space of a process. Every
// operand of a launch and the device side of a copy must be in memory that it
// has allocated; otherwise the run fails with an error that names the operand.
#ifndef LB_TESTS_MIRROR_H
#define LB_TESTS_MIRROR_H

#include "device/device.h"

// Takes ownership of `inner`.
lb_status mirror_open(lb_device *inner, lb_device **out);

#endif
