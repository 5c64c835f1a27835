//go:build !linux

package demo

// readSystem would fill in what the system says beyond what Go itself knows.
func readSystem(*Facts) {}
