//go:build !unix

package lab

import (
	"os"
	"os/exec"
)

// as does nothing: there is no root.
func as(*exec.Cmd, string) error { return nil }

// Give does nothing: there is no root.
func Give(string, string) error { return nil }

// stop ends a process: it cannot be asked.
func stop(p *os.Process) error { return p.Kill() }
