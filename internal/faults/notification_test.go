//go:build linux && !race

package faults

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp"
)

// hook is a receiver of webhooks that is often down, and notes what it has taken.
type hook struct {
	key []byte

	mu     sync.Mutex // guards what follows
	rand   *rand.Rand
	well   bool              // it takes everything
	bodies map[string][]byte // that came, by id
	taken  map[string]int    // how often each was answered with 200
	cut    int               // connections that were cut before an answer
	wrong  []string
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		return // the dispatcher was killed
	}
	id := r.Header.Get("webhook-id")
	sum := hmac.New(sha256.New, h.key)
	_, _ = fmt.Fprintf(sum, "%s.%s.%s", id, r.Header.Get("webhook-timestamp"), body)
	if got := r.Header.Get("webhook-signature"); got != "v1,"+base64.StdEncoding.EncodeToString(sum.Sum(nil)) {
		h.wrong = append(h.wrong, id+" is signed "+got)
	}
	if before := h.bodies[id]; before != nil && !bytes.Equal(before, body) {
		h.wrong = append(h.wrong, fmt.Sprintf("%s says %s, and before %s", id, body, before))
	}
	h.bodies[id] = body
	switch n := h.rand.IntN(8); {
	case h.well || n > 3:
		h.taken[id]++
		w.WriteHeader(http.StatusOK)
	case n == 0:
		h.cut++
		panic(http.ErrAbortHandler)
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// startHook starts a receiver for the dispatcher of a fleet, which is not started yet, and returns its URL.
func startHook(t *testing.T, f *Fleet) (h *hook, url string) {
	t.Helper()
	h = &hook{key: []byte("0123456789abcdef01234567"), rand: rand.New(rand.NewPCG(report.Seed, 83)), bodies: map[string][]byte{}, taken: map[string]int{}}
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	f.Dispatcher.Secrets, f.Dispatcher.HookCA = filepath.Join(f.Dir, "secrets"), filepath.Join(f.Dir, "hook.pem")
	must(t, os.MkdirAll(f.Dispatcher.Secrets, 0o700))
	must(t, os.WriteFile(filepath.Join(f.Dispatcher.Secrets, "hook"), []byte("whsec_"+base64.StdEncoding.EncodeToString(h.key)), 0o600))
	must(t, os.WriteFile(f.Dispatcher.HookCA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	return h, server.URL
}

// T1 of notifications: the dispatcher is killed again and again while jobs end and a receiver is down half of the time. Each end is told:
// of what the feed has, the receiver gets one message, under one id, and a second time only what the dispatcher could not note before
// a kill.
func TestKillDispatcherOfNotifications(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	h, url := startHook(t, f)
	must(t, f.StartDispatcher())
	all := callers(t, f, 3)
	caller := all[0]
	startAgents(t, f, caller, "host00", "host01")
	ns := caller.Notifications()
	types := []string{string(harp.EventJobSucceeded), string(harp.EventJobTimedOut)}
	must(t, ns.Put(t.Context(), harp.Notification{
		Name: "ends", On: types, To: harp.Receiver{Webhook: &harp.Webhook{URL: url, Secrets: []string{"hook"}}},
	}))
	kills := pick(5, 60)
	load := &Load{Fleet: f, Callers: all, Hosts: []string{"host00", "host01"}, Workers: 4, Rate: pick(20, 40), Seed: report.Seed, Limits: true, Plain: true}
	underLoad(t, load, func(r *rand.Rand) {
		for range kills {
			between(r, 200*time.Millisecond, 2*time.Second)
			f.KillDispatcher()
			must(t, f.StartDispatcher())
			ctx, cancel := context.WithTimeout(t.Context(), readyWithin)
			_, _ = ns.Retry(ctx, "ends", "") // or its messages are tried after minutes
			cancel()
		}
	})
	h.mu.Lock()
	h.well = true
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), settleWithin)
	defer cancel()
	Settle(ctx, f, caller)
	ends := endsInFeed(t, caller, types)
	for taken := 0; taken < len(ends); {
		if ctx.Err() != nil {
			t.Fatalf("%d of %d ends were told of", taken, len(ends))
		}
		_, err := ns.Retry(ctx, "ends", "")
		must(t, err)
		time.Sleep(100 * time.Millisecond)
		h.mu.Lock()
		taken = len(h.taken)
		h.mu.Unlock()
	}
	again := h.check(t, ends, kills)
	t.Logf("%d ends, %d told of again, %d connections cut", len(ends), again, h.cut)
	report.Note(t.Name(), "kills", kills)
	report.Note(t.Name(), "events", len(ends))
	report.Note(t.Name(), "again", again)
	holds(t, f, caller)
}

// endsInFeed are the jobs whose ends the feed tells of, each with how often.
func endsInFeed(t *testing.T, caller *harp.Caller, types []string) map[string]int {
	t.Helper()
	ends := map[string]int{}
	for cursor := harp.EventsFromStart; ; {
		page, err := caller.EventsPage(t.Context(), harp.EventFilter{After: cursor, Types: types}, false)
		must(t, err)
		for _, e := range page.Events {
			ends[e.Job]++
		}
		if page.Cursor == cursor {
			return ends
		}
		cursor = page.Cursor
	}
}

// check compares what was taken with what the feed tells, and returns how many messages were taken once more.
func (h *hook) check(t *testing.T, ends map[string]int, kills int) (again int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, wrong := range h.wrong {
		t.Error(wrong)
	}
	told := map[string]int{}
	for id, times := range h.taken {
		var m struct {
			Data struct{ Job string } `json:"data"`
		}
		must(t, json.Unmarshal(h.bodies[id], &m))
		told[m.Data.Job]++
		again += times - 1
	}
	for job, n := range ends {
		if told[job] != n {
			t.Errorf("of %d ends of %s messages with %d ids tell", n, job, told[job])
		}
	}
	for job := range told {
		if ends[job] == 0 {
			t.Errorf("an end of %s is told, of which the feed knows nothing", job)
		}
	}
	if most := 2 * kills; again > most { // two are sent at a time
		t.Errorf("%d messages that were taken came again, at most %d could not be noted", again, most)
	}
	return again
}
