package notify

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// SetResolver makes names be resolved by r.
func (w *Webhooks) SetResolver(r *net.Resolver) { w.dialer.Resolver = r }

// SetDial makes http connect by dial, whatever the address is.
func (w *Webhooks) SetDial(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	w.transport.DialContext = dial
}

// RetryAfter is how long a header asks to be left alone for.
func RetryAfter(header string, now time.Time) time.Duration { return retryAfter(header, now) }

// Public reports whether an address is of a host on the public Internet.
func Public(address netip.Addr) bool { return public(address) }
