package dispatcher_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// nthReadStore is a store of which one call fails of those by which a dispatcher is opened.
type nthReadStore struct{ *nthCallStore }

func (s nthReadStore) ListSchedules(ctx context.Context, cursor string, n int) (page []*store.Schedule, next string, err error) {
	err = s.do(func() (err error) { page, next, err = s.Store.ListSchedules(ctx, cursor, n); return err })
	return page, next, err
}

func (s nthReadStore) ListHosts(ctx context.Context, cursor string, n int) (page []store.Host, next string, err error) {
	err = s.do(func() (err error) { page, next, err = s.Store.ListHosts(ctx, cursor, n); return err })
	return page, next, err
}

// A dispatcher of which something that is stored cannot be read now, whatever that is, does not open as if there were nothing.
func TestWhatCannotBeReadAsItIsOpened(t *testing.T) {
	disk, ctx := memory.NewDisk(), t.Context()
	cfg := dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}, Senders: []notify.Sender{downHook{}}}
	d := must[*dispatcher.Dispatcher](t)(dispatcher.Open(ctx, memory.OpenDisk(disk, nil), cfg))
	c := d.Caller()
	ok(t, c.Groups().Put(ctx, "g", "web*"))
	ok(t, c.Maintenance().Put(ctx, harp.Window{Name: "w", Target: "@g", From: time.Now().Add(-time.Hour)}))
	must[int](t)(c.Hosts().Pause(ctx, "web01", "disk", time.Now().Add(time.Hour)))
	must[int](t)(c.Hosts().Label(ctx, "web01", map[string]string{"k": "v"}))
	ok(t, c.Notifications().Put(ctx, harp.Notification{Name: "n", On: []string{"*"}, To: harp.Receiver{Webhook: &harp.Webhook{URL: "https://x", Secrets: []string{"s"}}}}))
	ok(t, d.Shutdown(ctx))
	for n := int64(1); ; n++ {
		st := nthReadStore{&nthCallStore{Store: memory.OpenDisk(disk, nil)}}
		st.left.Store(n)
		d, err := dispatcher.Open(ctx, st, cfg)
		if err == nil {
			ok(t, d.Shutdown(ctx))
			if n < 10 {
				t.Errorf("it opened though call %d failed", n)
			}
			return
		}
		if !errors.Is(err, errTrouble) {
			t.Errorf("call %d failed: %v", n, err)
		}
	}
}
