package wire

import (
	"errors"
	"testing"

	"github.com/harpcaller/harp"
)

// TestAddressesThatCannotBe: an address without a host would be this machine, and one with a port that there is
// not would be tried for ever.
func TestAddressesThatCannotBe(t *testing.T) {
	for _, addr := range []string{"harp.example", "harp.example:7440", "harp.example:https", "10.0.0.1", "::1", "[::1]:65535", "fe80::1%eth0"} {
		if err := CheckAddr(addr); err != nil {
			t.Errorf("%q: %v", addr, err)
		}
	}
	for _, addr := range []string{"", ":7440", ":", "harp.example:", "harp.example:0", "harp.example:65536", "harp.example:99999999999999999999", "harp.example:-1", "[]"} {
		var wrong *harp.FieldError
		if err := CheckAddr(addr); !errors.As(err, &wrong) || wrong.Field != "addr" {
			t.Errorf("%q: %v", addr, err)
		}
	}
}
