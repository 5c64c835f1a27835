package wire

import (
	"net"
	"strings"
)

// The ports of addresses that name none.
const (
	DispatcherPort = "7440"
	AgentPort      = "7442" // of an agent that is dialled
)

// WithPort adds a port to an address that has none.
func WithPort(addr, port string) string {
	if _, _, err := net.SplitHostPort(addr); err == nil {
		return addr
	}
	return net.JoinHostPort(strings.Trim(addr, "[]"), port)
}
