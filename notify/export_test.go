package notify

import (
	"context"
	"net"
	"time"
)

// SetResolver makes names be resolved by r.
func (w *Webhooks) SetResolver(r *net.Resolver) { w.transport.SetResolver(r) }

// SetDial makes http connect by dial, whatever the address is.
func (w *Webhooks) SetDial(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	w.transport.SetDial(dial)
}

// RetryAfter is how long a header asks to be left alone for.
func RetryAfter(header string, now time.Time) time.Duration { return retryAfter(header, now) }
