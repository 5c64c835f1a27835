package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/harptest"
)

// fetch makes a request as ana; the answer's body is decoded into into unless that is nil.
func fetch(t *testing.T, method, url, form, key string, want int, into any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("ana", "")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != want {
		t.Fatalf("%s %s: %s, %v: %s", method, url, res.Status, err, text)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

type started struct {
	ID      string `json:"id"`
	Existed bool   `json:"existed"`
}

type state struct {
	Job    harp.JobStatus `json:"job"`
	Result DeployResult   `json:"result"`
	Error  harp.Failure   `json:"error"`
}

// log reads the lines of a job, those behind last, until it has ended.
func readLog(t *testing.T, url, last string) (lines []string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/log", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Last-Event-ID", last)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	events := bufio.NewScanner(res.Body)
	for events.Scan() {
		if line, ok := strings.CutPrefix(events.Text(), "data: "); ok && line != "{}" {
			lines = append(lines, line)
		}
	}
	return lines
}

// The service in a test has the real dispatcher and agent, in memory.
func TestDeploy(t *testing.T) {
	sys := harptest.New(t, harptest.Options{Agents: []string{"web01"}, Register: register})
	a := &app{orders: t.TempDir(), stopping: t.Context(), callerAs: func(user string) *harp.Caller {
		return sys.Dispatcher().CallerAs(harp.Principal{Kind: "user", Name: user})
	}}
	server := httptest.NewServer(a.handler())
	defer server.Close()

	var first, again started
	fetch(t, http.MethodPost, server.URL+"/hosts/web01/deploy", "version=1.4", "r7", http.StatusAccepted, &first)
	fetch(t, http.MethodPost, server.URL+"/hosts/web01/deploy", "version=1.4", "r7", http.StatusAccepted, &again)
	if first.Existed || !again.Existed || first.ID != again.ID {
		t.Errorf("posted twice: %+v, %+v", first, again)
	}
	job := server.URL + "/jobs/" + first.ID
	if got := strings.Join(readLog(t, job, ""), " "); got != `"fetch 1.4" "unpack 1.4" "restart 1.4"` {
		t.Errorf("the log is %s", got)
	}
	if got := readLog(t, job, "1"); len(got) != 1 {
		t.Errorf("behind line 1 the log is %q", got)
	}
	var s state
	fetch(t, http.MethodGet, job, "", "", http.StatusOK, &s)
	if s.Job.State != harp.StateSucceeded || s.Job.Principal.Name != "ana" || s.Result.Steps != 3 || !s.Error.IsZero() {
		t.Errorf("the job is %+v", s)
	}

	var broken started
	fetch(t, http.MethodPost, server.URL+"/hosts/web01/deploy", "version=broken", "", http.StatusAccepted, &broken)
	readLog(t, server.URL+"/jobs/"+broken.ID, "")
	s = state{}
	if fetch(t, http.MethodGet, server.URL+"/jobs/"+broken.ID, "", "", http.StatusOK, &s); s.Error.Type != "unit_failed" {
		t.Errorf("the job is %+v", s)
	}
	fetch(t, http.MethodDelete, job, "", "", http.StatusAccepted, nil)
	fetch(t, http.MethodPost, server.URL+"/hosts/nope/deploy", "version=1", "", http.StatusNotFound, nil)
	fetch(t, http.MethodPost, server.URL+"/hosts/web01/deploy", "version=2.0", "r7", http.StatusConflict, nil)
	fetch(t, http.MethodGet, server.URL+"/jobs/"+harp.NewID(), "", "", http.StatusNotFound, nil)
	fetch(t, http.MethodGet, server.URL+"/jobs/none/log", "", "", http.StatusBadRequest, nil)
	var page harp.Page[harp.JobStatus]
	if fetch(t, http.MethodGet, server.URL+"/jobs?host=web01", "", "", http.StatusOK, &page); len(page.Items) != 2 {
		t.Errorf("the list is %+v", page)
	}
}

// An order that was written and not called, as the process died in between, is called when it is back.
func TestRecovery(t *testing.T) {
	sys := harptest.New(t, harptest.Options{Agents: []string{"web01"}, Register: register})
	a := &app{orders: t.TempDir(), stopping: t.Context(), callerAs: func(user string) *harp.Caller {
		return sys.Dispatcher().CallerAs(harp.Principal{Kind: "user", Name: user})
	}}
	o := order{ID: harp.NewID(), User: "ana", Host: "web01", Version: "1.5"}
	row, err := json.Marshal(o)
	for range 2 { // the process may also die between the call and the removal of its order
		torn := a.file(order{ID: "torn"})
		if err := errors.Join(err, os.WriteFile(a.file(o), row, 0o600), os.WriteFile(torn, row[:9], 0o600), a.recover(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	outcome, err := Deploy.Wait(t.Context(), sys.Caller().Job(o.ID))
	if err != nil || outcome.Err != nil || outcome.Value.Version != "1.5" {
		t.Errorf("%+v, %v", outcome, err)
	}
	harptest.RequireCalled(t, sys, Deploy.Proc, func(args DeployArgs) bool { return args.Version == "1.5" })
}

// The service as it runs: it stops in order, and finds its jobs again when it is back.
func TestRestart(t *testing.T) {
	dir, id := t.TempDir(), ""
	for round := range 2 {
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		addr, done := make(chan string, 1), make(chan error, 1)
		go func() { done <- run(ctx, "127.0.0.1:0", dir, func(a string) { addr <- a }) }()
		select {
		case err := <-done:
			t.Fatal(err)
		case a := <-addr:
			url := "http://" + a
			if round == 0 {
				var s started
				fetch(t, http.MethodPost, url+"/hosts/web01/deploy", "version=1.4", "", http.StatusAccepted, &s)
				id = s.ID
			}
			readLog(t, url+"/jobs/"+id, "")
			var s state
			if fetch(t, http.MethodGet, url+"/jobs/"+id, "", "", http.StatusOK, &s); s.Result.Version != "1.4" {
				t.Errorf("round %d: %+v", round, s)
			}
			fetch(t, http.MethodGet, url+"/healthz", "", "", http.StatusOK, nil)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the service ended with %v", err)
		}
	}
}
