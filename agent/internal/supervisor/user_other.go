//go:build !linux

package supervisor

import "github.com/harpcaller/harp/agent/internal/proc"

// noFollow is not to be had everywhere.
const noFollow = 0

// asUser calls fn with the rights of this process, elsewhere than on Linux.
func asUser(_ proc.Spec, fn func() error) error { return fn() }
