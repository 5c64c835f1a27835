package notify

import (
	"context"
	"net"
	"net/http"
	"time"
)

// SetResolver makes names be resolved by r.
func (w *Webhooks) SetResolver(r *net.Resolver) { w.transport.SetResolver(r) }

// SetDial makes http connect by dial, whatever the address is.
func (w *Webhooks) SetDial(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	w.transport.SetDial(dial)
}

// ReadAnswer is what an answer says.
func ReadAnswer(response *http.Response, now time.Time) error { return readAnswer(response, now) }

// RetryAfter is how long a header asks to be left alone for.
func RetryAfter(header string, now time.Time) time.Duration { return retryAfter(header, now) }
