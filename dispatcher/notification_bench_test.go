package dispatcher_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/store/badger"
)

// hooks take messages, but for those that never answer.
type hooks struct {
	mu   sync.Mutex
	left int
	done chan struct{}
}

func (h *hooks) Accepts(harp.Receiver) bool { return true }

func (h *hooks) Check(harp.Receiver) error { return nil }

func (h *hooks) Send(ctx context.Context, r harp.Receiver, _ notify.Message) error {
	if strings.HasPrefix(r.Webhook.URL, "https://silent") {
		<-ctx.Done()
		return ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left--; h.left == 0 {
		close(h.done)
	}
	return nil
}

// BenchmarkNotifications: of 1,000 messages to 50 receivers, 5 of which never answer, the other 45 get theirs.
func BenchmarkNotifications(b *testing.B) {
	const receivers, silent, events = 50, 5, 20
	for b.Loop() {
		b.StopTimer()
		h := &hooks{left: (receivers - silent) * events, done: make(chan struct{})}
		st, err := badger.Open(b.TempDir(), nil)
		if err != nil {
			b.Fatal(err)
		}
		d, err := dispatcher.Open(b.Context(), st, dispatcher.Config{Senders: []notify.Sender{h}})
		if err != nil {
			b.Fatal(err)
		}
		for n := range receivers {
			url := fmt.Sprintf("https://receiver%d.example/", n)
			if n < silent {
				url = fmt.Sprintf("https://silent%d.example/", n)
			}
			one := harp.Notification{Name: fmt.Sprint(n), On: []string{"group.changed"}, To: harp.Receiver{Webhook: &harp.Webhook{URL: url, Secrets: []string{"s"}}}}
			if err := d.Caller().Notifications().Put(b.Context(), one); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		for n := range events {
			if err := d.Caller().Groups().Put(b.Context(), fmt.Sprintf("g%d", n), "web*"); err != nil {
				b.Fatal(err)
			}
		}
		select {
		case <-h.done:
		case <-time.After(time.Minute):
			b.Fatal("they have not got theirs")
		}
		b.StopTimer()
		if err := d.Shutdown(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
