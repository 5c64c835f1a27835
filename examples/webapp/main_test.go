package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
)

// serve runs the service and returns its URL. The function that it returns stops it.
func serve(t *testing.T, dir string) (url string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	addr, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- run(ctx, "127.0.0.1:0", dir, func(a string) { addr <- a }) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the service ended with %v", err)
		}
	}
	select {
	case a := <-addr:
		return "http://" + a, stop
	case err := <-done:
		t.Fatal(err)
		return "", nil
	}
}

// fetch makes a request; the answer's body is decoded into into unless that is nil.
func fetch(t *testing.T, method, url, body string, want int, into any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
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

// state is what the service says of a job.
type state struct {
	Job struct {
		State harp.State `json:"state"`
	} `json:"job"`
	Done    bool       `json:"done"`
	Result  RollResult `json:"result"`
	Records []struct {
		Value int `json:"value"`
	} `json:"records"`
}

// finished reads a job until it is done. Each request is an answer of its own, as a
// web page would have it.
func finished(t *testing.T, url string) state {
	t.Helper()
	for {
		var s state
		if fetch(t, http.MethodGet, url, "", http.StatusOK, &s); s.Done {
			return s
		}
	}
}

func TestWebapp(t *testing.T) {
	dir := t.TempDir()
	url, stop := serve(t, dir)
	var started struct {
		ID string `json:"id"`
	}
	fetch(t, http.MethodPost, url+"/jobs", `{"host":"web01","procedure":"roll","args":{"dice":3}}`, http.StatusAccepted, &started)
	s := finished(t, url+"/jobs/"+started.ID)
	sum := 0
	for _, r := range s.Records {
		sum += r.Value
	}
	if s.Job.State != harp.StateSucceeded || len(s.Records) != 3 || s.Result.Sum != sum {
		t.Errorf("the job is %+v", s)
	}

	fetch(t, http.MethodPost, url+"/jobs", `{"host":"nope","procedure":"roll"}`, http.StatusNotFound, nil)
	fetch(t, http.MethodPost, url+"/jobs", `{"host":"web01","procedure":"roll","args":{"dice":"many"}}`, http.StatusBadRequest, nil)
	fetch(t, http.MethodPost, url+"/jobs", `dice`, http.StatusBadRequest, nil)
	fetch(t, http.MethodGet, url+"/jobs/"+harp.NewID(), "", http.StatusNotFound, nil)

	// A client that chose the id may post again.
	again := `{"id":"` + harp.NewID() + `","host":"web01","procedure":"roll","args":{"dice":1}}`
	var first, second struct {
		ID string `json:"id"`
	}
	fetch(t, http.MethodPost, url+"/jobs", again, http.StatusAccepted, &first)
	fetch(t, http.MethodPost, url+"/jobs", again, http.StatusAccepted, &second)
	if first != second {
		t.Errorf("posted twice, it is job %s and job %s", first.ID, second.ID)
	}
	finished(t, url+"/jobs/"+first.ID)

	// The job is there after a restart.
	stop()
	url, stop = serve(t, dir)
	defer stop()
	if got := finished(t, url+"/jobs/"+started.ID); got.Result != s.Result || len(got.Records) != 3 {
		t.Errorf("after a restart the job is %+v", got)
	}
}
