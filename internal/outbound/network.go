// Package outbound asks servers of others for what callers name by a URL. The dispatcher stands in a network that the caller may
// have no access to: which addresses it reaches is said by who runs it. See docs/decisions/0040.
package outbound

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"github.com/harpcaller/harp"
)

// ErrNetwork says that an address may not be reached. It does not tell the address: a caller who may write URLs need not learn
// what the names of the dispatcher's network stand for.
var ErrNetwork = errors.New("is in no network that the dispatcher's configuration allows to be reached")

// networks are what may be reached beside the public Internet.
type networks []netip.Prefix

func newNetworks(prefixes []netip.Prefix) (networks, error) {
	var n networks
	for _, prefix := range prefixes {
		if !prefix.IsValid() || prefix.Addr().Is4In6() {
			return nil, &harp.FieldError{Field: "networks", Message: fmt.Sprintf("%v is no network as 10.1.0.0/16 or fd00::/8", prefix)}
		}
		n = append(n, prefix.Masked())
	}
	return n, nil
}

// contain reports whether one of n holds an address.
func (n networks) contain(address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	for _, prefix := range n {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}

// allow reports whether an address is a public one, or in one of n.
func (n networks) allow(address netip.Addr) bool { return n.contain(address) || Public(address) }

// Public reports whether an address is of a host on the public Internet. See IANA's registries of special addresses
// (RFC 6890). Of IPv6 only 2000::/3 is, so that addresses which hold one of IPv4 (mapped, compatible, NAT64) are not.
func Public(address netip.Addr) bool {
	address = address.Unmap()
	special := special6
	if address.Is4() {
		special = special4
	} else if !global6.Contains(address) {
		return false
	}
	for _, prefix := range special {
		if prefix.Contains(address) {
			return false
		}
	}
	return address.Zone() == ""
}

var (
	global6  = netip.MustParsePrefix("2000::/3")
	special4 = prefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
		"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4")
	special6 = prefixes("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20") // Teredo and others of its kind, documentation, 6to4
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// literal returns the address that a host of a URL is, if it is no name that has to be asked for.
func literal(host string) (netip.Addr, bool) {
	if name := strings.ToLower(strings.TrimSuffix(host, ".")); name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), true
	}
	address, err := netip.ParseAddr(host)
	return address, err == nil
}

// allowOnly returns what a net.Dialer asks before it connects, when names have been resolved.
func allowOnly(allowed func(netip.Addr) bool) func(context.Context, string, string, syscall.RawConn) error {
	return func(_ context.Context, _, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil || !allowed(at.Addr()) {
			return ErrNetwork
		}
		return nil
	}
}
