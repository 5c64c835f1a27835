//go:build unix

package dispatcher

import (
	"os/exec"
	"syscall"
)

// killWithChildren lets a command be killed with what it has started: a shell's death
// does not end the program that it waits for.
func killWithChildren(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
