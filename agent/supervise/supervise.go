// Package supervise lets the commands of an agent in a program of your own outlive that
// program's restarts.
//
//	func main() {
//		supervise.Main()
//		...
//	}
//
// An agent runs a command by way of a supervisor, a small process that owns the command,
// its limits and its output, and that is the same binary. Without the call commands run
// as children of the program and end with it. Supervisors are on Linux only.
package supervise

import "github.com/harpcaller/harp/agent/internal/supervisor"

// Main makes this process a supervisor and does not return, if an agent started it as
// one; otherwise it notes that supervisors can be had, and returns. It must be called
// first in main, before anything else is begun.
func Main() { supervisor.Main() }
