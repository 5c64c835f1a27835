package dispatcher

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// openWithWebs opens a dispatcher that knows web01 and web02.
func openWithWebs(t *testing.T) *Dispatcher {
	t.Helper()
	st := memory.Open(nil)
	for _, name := range []string{"web01", "web02"} {
		if _, err := st.OpenSession(t.Context(), store.Session{Host: name}); err != nil {
			t.Fatal(err)
		}
	}
	d, err := Open(t.Context(), st, Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Long targets weigh as much as calls of their length, whatever is asked about them: one waits while its
// principal has as much under way as it may, and short ones do not.
func TestLongTargetsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openWithWebs(t)
		who := harp.Principal{Kind: "caller", Name: "ci"}
		if err := d.turns.awaitTurn(t.Context(), who, aloneWeight-1); err != nil {
			t.Fatal(err)
		}
		s := d.service(who)
		for name, ask := range map[string]func(text string) error{
			"preview": func(text string) error {
				req := harp.Request{ID: harp.NewID(), Target: text, Procedure: "host.name", Needs: []string{harp.NeedBatch}}
				var hosts []byte
				if len(text) > harp.MaxTarget {
					names := make([]string, len(text)/len(",nobody"))
					for n := range names {
						names[n] = fmt.Sprintf("nobody%06d", n)
					}
					hosts, _ = harp.EncodeHosts(names)
					sum := sha256.Sum256(hosts)
					req.Target, req.List = "", &harp.HostList{Count: len(names), Digest: hex.EncodeToString(sum[:])}
				}
				_, err := s.PreviewBatch(t.Context(), harp.Submission{Request: req.Encode(), Hosts: hosts})
				return err
			},
			"list": func(text string) error { _, err := s.ListHosts(t.Context(), text, ""); return err },
			"ping": func(text string) error { _, err := s.PingHosts(t.Context(), text, ""); return err },
		} {
			if err := ask("nobody"); !errors.Is(err, harp.ErrNotFound) { // at once, or the test hangs
				t.Errorf("%s of a short target: %v", name, err)
			}
			done := make(chan error, 1)
			go func() { done <- ask("nobody" + strings.Repeat(",nobody", turnBytes)) }()
			if synctest.Wait(); len(done) != 0 {
				t.Errorf("%s of a long target does not wait for its turn", name)
			}
			d.turns.leaveTurn(who, aloneWeight-1)
			if err := <-done; !errors.Is(err, harp.ErrNotFound) {
				t.Errorf("%s of a long target: %v", name, err)
			}
			if err := d.turns.awaitTurn(t.Context(), who, aloneWeight-1); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Hosts that are not those of the request's list are refused, whoever wrote them.
func TestListOfOtherHosts(t *testing.T) {
	s := openWithWebs(t).service(harp.Principal{Kind: "caller", Name: "ci"})
	good, err := harp.EncodeHosts([]string{"web02", "web01", "web02"})
	if err != nil || string(good) != "\x00\x05web01\x00\x05web02" {
		t.Fatalf("the list is %q, %v", good, err)
	}
	submit := func(l *harp.HostList, target string, hosts []byte) error {
		req := harp.Request{ID: harp.NewID(), Target: target, List: l, Procedure: "host.name", Needs: []string{harp.NeedBatch}}
		out, err := s.Submit(t.Context(), []harp.Submission{{Request: req.Encode(), Hosts: hosts}})
		if err == nil {
			err = out[0].Err
		}
		return err
	}
	list := func(count int, hosts string) *harp.HostList {
		sum := sha256.Sum256([]byte(hosts))
		return &harp.HostList{Count: count, Digest: hex.EncodeToString(sum[:])}
	}
	if err := submit(list(2, string(good)), "", good); err != nil {
		t.Errorf("the list itself: %v", err)
	}
	for name, c := range map[string]struct {
		list   *harp.HostList
		target string
		hosts  string
		field  string
	}{
		"others":       {list(2, string(good)), "", "\x00\x05web01", "hosts"},
		"none":         {list(2, string(good)), "", "", "hosts"},
		"more":         {list(3, string(good)), "", string(good), "hosts"},
		"not sorted":   {list(2, "\x00\x05web02\x00\x05web01"), "", "\x00\x05web02\x00\x05web01", "hosts"},
		"twice":        {list(2, "\x00\x05web01\x00\x05web01"), "", "\x00\x05web01\x00\x05web01", "hosts"},
		"cut":          {list(2, "\x00\x05web01\x00\x05web"), "", "\x00\x05web01\x00\x05web", "hosts"},
		"no name":      {list(1, "\x00\x00"), "", "\x00\x00", "hosts"},
		"empty":        {list(0, ""), "", "", "list"},
		"no digest":    {&harp.HostList{Count: 2}, "", string(good), "list"},
		"and a target": {list(2, string(good)), "web*", string(good), "list"},
		"a target":     {nil, "web*", string(good), "hosts"},
	} {
		var wrong *harp.FieldError
		if err := submit(c.list, c.target, []byte(c.hosts)); !errors.As(err, &wrong) || wrong.Field != c.field {
			t.Errorf("%s: %v, want it to be about %s", name, err, c.field)
		}
	}
}
