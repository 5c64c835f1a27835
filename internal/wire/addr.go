package wire

import (
	"net"
	"strconv"
	"strings"

	"github.com/harpcaller/harp"
)

// The ports of addresses that name none.
const (
	DispatcherPort = "7440"
	AgentPort      = "7442" // of an agent that is dialled
)

// CheckAddr returns a *harp.FieldError unless addr is a host, with or without a port. A port may be a name.
func CheckAddr(addr string) error {
	host, port, err := net.SplitHostPort(WithPort(addr, DispatcherPort))
	if err != nil || host == "" || port == "" {
		return &harp.FieldError{Field: "addr", Message: "must be a host, with or without a port"}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if isNumber := strings.Trim(port, "+-0123456789") == ""; isNumber && (err != nil || n == 0) {
		return &harp.FieldError{Field: "addr", Message: "must have a port from 1 to 65535, not " + addr}
	}
	return nil
}

// WithPort adds a port to an address that has none.
func WithPort(addr, port string) string {
	if _, _, err := net.SplitHostPort(addr); err == nil {
		return addr
	}
	return net.JoinHostPort(strings.Trim(addr, "[]"), port)
}
