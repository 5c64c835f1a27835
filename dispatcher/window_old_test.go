package dispatcher

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
)

// A window that is put anew just as it is deleted for its age stays.
func TestAWindowPutAnewIsNotDeletedForItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, nil, Config{Hosts: StaticHosts{{Name: "a"}}})
		m, ctx := d.Caller().Maintenance(), t.Context()
		w := harp.Window{Name: "w", Target: "a", From: time.Now(), To: time.Now().Add(time.Hour)}
		if err := m.Put(ctx, w); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		old, err := d.windows.find("w")
		if err != nil || !old.isOver(time.Now()) {
			t.Fatalf("it is %+v, %v", old, err)
		}
		w.To = time.Time{}
		if err := m.Put(ctx, w); err != nil {
			t.Fatal(err)
		}
		if err := d.deleteOldWindow(ctx, old); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Get(ctx, "w"); err != nil || !isHeldNow(t, d) {
			t.Errorf("the new one: %v", err)
		}
	})
}

// An open window that is deleted is told of as deleted, and not as closed too.
func TestADeletedWindowIsNotToldAsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, nil, Config{Hosts: StaticHosts{{Name: "a"}}})
		m, ctx := d.Caller().Maintenance(), t.Context()
		if err := m.Put(ctx, harp.Window{Name: "w", Target: "a", From: time.Now()}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := m.Delete(ctx, "w"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if told := eventsOf(t, d, "window.*"); !slices.Equal(told, []string{"window.changed w", "window.opened w", "window.deleted w"}) {
			t.Errorf("told is %q", told)
		}
	})
}
