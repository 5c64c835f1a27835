package outbound_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/harpcaller/harp/internal/outbound"
)

// TestPublic: which addresses are reached where the configuration allows no networks.
func TestPublic(t *testing.T) {
	for _, address := range strings.Fields(`
		0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.127.255.255 127.0.0.1 127.255.255.255 169.254.169.254 172.16.0.1 172.31.255.255
		192.0.0.8 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.1.2.3 240.0.0.1 255.255.255.255
		:: ::1 ::127.0.0.1 ::ffff:10.0.0.1 ::ffff:127.0.0.1 ::ffff:0:127.0.0.1 64:ff9b::7f00:1 64:ff9b::808:808 64:ff9b:1::1 100::1 2001::1 2001:10::1 2001:20::1
		2001:db8::1 2002:7f00:1::1 3fff::1 5f00::1 fc00::1 fd00::1 fe80::1 fe80::1%eth0 fec0::1 ff02::1 ff0e::1 4000::1 2600::1%eth0`) {
		if outbound.Public(netip.MustParseAddr(address)) {
			t.Errorf("%s is public", address)
		}
	}
	for _, address := range strings.Fields(`1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255 172.15.255.255 172.32.0.0
		192.0.1.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255 ::ffff:8.8.8.8 2600::1 2001:200::1 2001:4860:4860::8888 2a00::1`) {
		if !outbound.Public(netip.MustParseAddr(address)) {
			t.Errorf("%s is not public", address)
		}
	}
}
