package dispatcher

import (
	"context"
	"errors"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store/memory"
)

// A change of groups that is asked for again, as its answer was lost, is done once.
func TestGroupsAreChangedOnce(t *testing.T) {
	d, err := Open(t.Context(), memory.Open(nil), Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s, ctx := d.service(harp.Principal{Kind: "caller", Name: "ada"}), t.Context()
	put, other, deleted := harp.NewID(), harp.NewID(), harp.NewID()
	for _, change := range []error{
		s.PutGroup(ctx, put, "g", "web*"), s.PutGroup(ctx, other, "g", "db*"), s.PutGroup(ctx, put, "g", "web*"),
	} {
		if change != nil {
			t.Fatal(change)
		}
	}
	if text, _ := d.groups.text("g"); text != "db*" {
		t.Errorf("asked again, the first change is made again: it is %s", text)
	}
	if err := s.PutGroup(ctx, put, "g", "x*"); !errors.Is(err, harp.ErrConflict) {
		t.Errorf("another request under the id gives %v", err)
	}
	for _, change := range []error{
		s.DeleteGroup(ctx, deleted, "g"), s.DeleteGroup(ctx, deleted, "g"), s.PutGroup(ctx, harp.NewID(), "g", "x*"), s.DeleteGroup(ctx, deleted, "g"),
	} {
		if change != nil {
			t.Fatal(change)
		}
	}
	if text, _ := d.groups.text("g"); text != "x*" {
		t.Errorf("asked again, the deletion is made again: it is %q", text)
	}
}

// Hosts are labelled once, also where their target does not select them any more.
func TestHostsAreLabelledOnce(t *testing.T) {
	d, err := Open(t.Context(), memory.Open(nil), Config{Hosts: StaticHosts{{Name: "web01", Labels: map[string]string{"role": "web"}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s, id := d.service(harp.Principal{Kind: "caller", Name: "ada"}), harp.NewID()
	for range 2 {
		n, err := s.LabelHosts(t.Context(), id, "role=web", map[string]string{"role": "db", "a": "b", "c": "d"}, []string{"x"})
		if err != nil || n != 1 {
			t.Errorf("%d hosts are labelled, %v", n, err)
		}
	}
	if _, err := s.LabelHosts(t.Context(), id, "role=web", map[string]string{"role": "db"}, nil); !errors.Is(err, harp.ErrConflict) {
		t.Errorf("another request under the id gives %v", err)
	}
}
