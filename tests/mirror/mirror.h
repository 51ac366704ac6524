// tests/mirror/mirror.h -- a device with memory of its own that is no GPU.
//
// It forwards to another device, and gives out addresses that no host pointer
// equals and that fault when the host uses them: the address of the inner
// device's memory plus a constant beyond all that a process can map. Every
// operand of a launch and both ends of a copy must be in memory that it has
// allocated; else the run ends with an error that says which operand is not.
#ifndef LB_TESTS_MIRROR_H
#define LB_TESTS_MIRROR_H

#include "device/device.h"

// Takes `inner` over.
lb_status mirror_open(lb_device *inner, lb_device **out);

#endif
