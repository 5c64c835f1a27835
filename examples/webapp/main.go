// Command webapp is a web service with a dispatcher inside itself. A POST starts a
// job on a host and answers its id; a GET reads the job's state, its records so far
// and its result, at any later time.
//
//	go run ./examples/webapp
//	curl -d '{"host":"web01","procedure":"roll","args":{"dice":3}}' http://127.0.0.1:8080/jobs
//	curl http://127.0.0.1:8080/jobs/ID
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/harpcaller/harp"
)

// newHandler is the web part. It needs a Caller only: whether the dispatcher is in
// this process or elsewhere (client.Dial) makes no difference.
func newHandler(caller *harp.Caller) http.Handler {
	app := &app{caller}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /jobs", app.start)
	mux.HandleFunc("GET /jobs/{id}", app.read)
	return mux
}

type app struct{ caller *harp.Caller }

// start calls a procedure. The id in the answer is good for ever: the job is on disk.
func (a *app) start(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ID        string     `json:"id"` // may be chosen by the client, to post safely again
		Host      string     `json:"host"`
		Procedure string     `json:"procedure"`
		Args      harp.Value `json:"args"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	job, err := a.caller.Host(in.Host).Call(r.Context(), in.Procedure, in.Args,
		harp.JobID(cmp.Or(in.ID, harp.NewID())),
		harp.Queue(map[string]string{"host": in.Host}), harp.Concurrency(2), // two at a time on a host
		harp.MaxExecTime(time.Minute), harp.Info(map[string]string{"from": r.RemoteAddr}))
	if err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return
	}
	w.Header().Set("Location", "/jobs/"+job.ID())
	answer(w, http.StatusAccepted, map[string]string{"id": job.ID()})
}

// read tells how a job is doing. It never waits.
func (a *app) read(w http.ResponseWriter, r *http.Request) {
	job := a.caller.Job(r.PathValue("id"))
	status, err := job.Status(r.Context())
	if err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return
	}
	var result harp.Result // of a job that has not ended: zero
	if status.State.Ended() {
		if result, err = job.Result(r.Context()); err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
	}
	records := []harp.Record{}
	for record, err := range job.Stream(r.Context()) {
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		records = append(records, record)
	}
	answer(w, http.StatusOK, map[string]any{
		"job": status, "done": result.Done(), "result": result.Value, "records": records,
	})
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		log.Print(err) // the client has gone
	}
}

// statusOf says in HTTP what an error of harp means.
func statusOf(err error) int {
	switch {
	case errors.Is(err, harp.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, harp.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, harp.ErrPruned):
		return http.StatusGone
	case errors.Is(err, harp.ErrConflict):
		return http.StatusConflict
	case errors.Is(err, harp.ErrDenied):
		return http.StatusForbidden
	case errors.Is(err, harp.ErrRefused):
		return http.StatusTooManyRequests
	case errors.Is(err, harp.ErrUnavailable):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func main() {
	addr := flag.String("listen", "127.0.0.1:8080", "where to serve HTTP")
	dir := flag.String("dir", ".harp-webapp", "where to keep the data")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *addr, *dir, func(addr string) { log.Printf("POST http://%s/jobs", addr) }); err != nil {
		log.Fatal(err)
	}
}

// run serves HTTP until ctx ends. It says where when it does.
func run(ctx context.Context, addr, dir string, ready func(addr string)) (err error) {
	s, err := startSystem(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	ready(l.Addr().String())
	server := &http.Server{Handler: newHandler(s.dispatcher.Caller()), ReadHeaderTimeout: 10 * time.Second}
	stopped := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := server.Shutdown(grace); err != nil {
			log.Print(err)
		}
	})
	defer stopped()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
