package harp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/memory"
)

// restarter is the part of a web service that has to do with hosts: a POST starts a
// job, a GET reads how it is. It needs a Caller only, wherever the dispatcher is.
type restarter struct{ caller *harp.Caller }

// start answers with an id that is good for ever: the job is stored. A browser that
// posts again with the same id starts nothing twice.
func (a restarter) start(w http.ResponseWriter, r *http.Request) {
	job, err := a.caller.Host(r.PathValue("host")).Call(r.Context(), "service.restart",
		harp.Args{"service": r.FormValue("service")},
		harp.JobID(r.FormValue("id")), harp.Queue(map[string]string{"host": r.PathValue("host")}))
	switch {
	case errors.Is(err, harp.ErrInvalid):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case errors.Is(err, harp.ErrNotFound):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		w.Header().Set("Location", "/jobs/"+job.ID())
		w.WriteHeader(http.StatusAccepted)
	}
}

// read never waits.
func (a restarter) read(w http.ResponseWriter, r *http.Request) {
	status, err := a.caller.Job(r.PathValue("id")).Status(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"state": status.State, "reason": status.Reason}) // the browser may be gone
}

func (a restarter) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hosts/{host}/restart", a.start)
	mux.HandleFunc("GET /jobs/{id}", a.read)
	return mux
}

// A web service with a dispatcher inside. In earnest the store is badger.Open("data",
// nil), and agents connect through Dispatcher.Serve: examples/webapp has all of it.
func Example_webService() {
	ctx := context.Background()
	d, err := dispatcher.Open(ctx, memory.Open(nil), dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := restarter{d.Caller()}.handler()

	post := httptest.NewRequest(http.MethodPost, "/hosts/web01/restart", strings.NewReader("service=nginx&id="+harp.NewID()))
	post.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	accepted := httptest.NewRecorder()
	handler.ServeHTTP(accepted, post)
	fmt.Println(accepted.Code)

	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, accepted.Header().Get("Location"), nil))
	fmt.Print(answer.Body)
	if err := d.Shutdown(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 202
	// {"reason":"offline","state":"queued"}
}
