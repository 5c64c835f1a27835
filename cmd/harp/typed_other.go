//go:build !linux

package main

import "io"

// dropTyped drops what was typed at a terminal before now, where that can be done.
func dropTyped(io.Reader) {}
