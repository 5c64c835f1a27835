// Command webapp is a web service that deploys to hosts, with a dispatcher inside itself.
//
//	go run ./examples/webapp
//	curl -u ana: -H 'Idempotency-Key: release-7' -d version=1.4 http://127.0.0.1:8080/hosts/web01/deploy
//	curl -u ana: http://127.0.0.1:8080/jobs/ID
//	curl -u ana: -N http://127.0.0.1:8080/jobs/ID/log
//
// main.go is the web part, system.go the dispatcher and what a host offers, orders.go what the
// service itself remembers.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/harpcaller/harp"
)

// app answers the web. Whether the dispatcher is in this process or elsewhere makes no difference
// to it: callerAs would then return the Caller of client.Dial.
type app struct {
	callerAs func(user string) *harp.Caller
	orders   *orders
	stopping context.Context // ends when the service begins to stop
}

func (a *app) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hosts/{host}/deploy", a.deploy)
	mux.HandleFunc("GET /jobs", a.list)
	mux.HandleFunc("GET /jobs/{id}", a.read)
	mux.HandleFunc("GET /jobs/{id}/log", a.follow)
	mux.HandleFunc("DELETE /jobs/{id}", a.cancel)
	return mux
}

// userOf is who asks. A real service looks at the password, or at a session.
func userOf(r *http.Request) string {
	user, _, _ := r.BasicAuth()
	return cmp.Or(user, "anonymous")
}

func (a *app) caller(r *http.Request) *harp.Caller { return a.callerAs(userOf(r)) }

// deploy starts a job and answers its id at once. The order is noted before the call is made: should
// this process die in between, it calls again when it is back, under the same id.
func (a *app) deploy(w http.ResponseWriter, r *http.Request) {
	o := order{ID: harp.NewID(), User: userOf(r), Host: r.PathValue("host"), Version: r.FormValue("version"), Key: r.Header.Get("Idempotency-Key")}
	if err := a.orders.note(o); err != nil {
		fail(w, err)
		return
	}
	job, err := a.call(r.Context(), o)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Location", "/jobs/"+job.ID())
	answer(w, http.StatusAccepted, map[string]any{"id": job.ID(), "existed": job.Existed()})
}

// call makes the call of an order, and notes that it need not be made again. Two deployments of a
// host wait for each other.
func (a *app) call(ctx context.Context, o order) (*harp.Job, error) {
	opts := []harp.Option{
		harp.JobID(o.ID), harp.Queue(map[string]string{"host": o.Host}),
		harp.MaxExecTime(10 * time.Minute), harp.OfflineWait(time.Hour), harp.Label("app", "webapp"),
	}
	if o.Key != "" {
		opts = append(opts, harp.IdempotencyKey(o.Key, 24*time.Hour))
	}
	job, err := Deploy.Call(ctx, a.callerAs(o.User).Host(o.Host), DeployArgs{Version: o.Version}, opts...)
	if err == nil || harp.RanOf(err) == harp.DidNotRun {
		err = errors.Join(err, a.orders.note(order{ID: o.ID, Settled: true}))
	}
	return job, err
}

// read tells how a job is doing, and never waits for it.
func (a *app) read(w http.ResponseWriter, r *http.Request) {
	job := a.caller(r).Job(r.PathValue("id"))
	status, err := job.Status(r.Context())
	if err != nil {
		fail(w, err)
		return
	}
	out := map[string]any{"job": status}
	if status.State.Ended() { // then Wait does not wait, and an outcome never changes again
		outcome, err := Deploy.Wait(r.Context(), job)
		if err != nil {
			fail(w, err)
			return
		}
		out["result"], out["error"] = outcome.Value, harp.FailureOf(outcome.Err)
	}
	answer(w, http.StatusOK, out)
}

// list tells of the last jobs, newest first.
func (a *app) list(w http.ResponseWriter, r *http.Request) {
	page, err := a.caller(r).JobsPage(r.Context(), harp.JobFilter{Host: r.FormValue("host"), Limit: 50}, r.FormValue("cursor"))
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, page)
}

// follow sends the log as it comes, as server-sent events, until the job has ended. A browser that
// has lost the connection says which line it saw last, and misses none.
func (a *app) follow(w http.ResponseWriter, r *http.Request) {
	var next uint64
	if last, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64); err == nil {
		next = last + 1
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.stopping, cancel)()
	begun, flush := false, http.NewResponseController(w).Flush
	for record, err := range a.caller(r).Job(r.PathValue("id")).Follow(ctx, harp.Since(next)) {
		switch {
		case err != nil && !begun:
			fail(w, err)
			return
		case err != nil:
			return // the browser comes again
		case !begun:
			w.Header().Set("Content-Type", "text/event-stream")
			begun = true
		}
		if _, err := fmt.Fprintf(w, "id: %d\ndata: %s\n\n", record.Seq, record.Value); err != nil || flush() != nil {
			return // it has gone
		}
	}
	_, _ = io.WriteString(w, "event: end\ndata: {}\n\n")
}

// cancel asks a job to stop.
func (a *app) cancel(w http.ResponseWriter, r *http.Request) {
	live, err := a.caller(r).Job(r.PathValue("id")).Cancel(r.Context())
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusAccepted, map[string]bool{"live": live})
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		log.Print(err) // the client has gone
	}
}

// fail answers an error with the status it deserves, and as data: whose fault it is, and whether
// the procedure ran.
func fail(w http.ResponseWriter, err error) {
	answer(w, harp.HTTPStatus(err), map[string]any{"error": harp.FailureOf(err)})
}

func main() {
	addr := flag.String("listen", "127.0.0.1:8080", "where to serve HTTP")
	dir := flag.String("dir", ".harp-webapp", "where to keep the data")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr, *dir, func(addr string) { log.Printf("POST http://%s/hosts/web01/deploy", addr) }); err != nil {
		log.Fatal(err)
	}
}

// run serves HTTP until ctx ends. It says where when it does. What is under way is answered first;
// then the dispatcher stops: jobs go on at their agents.
func run(ctx context.Context, addr, dir string, ready func(addr string)) (err error) {
	s, err := startSystem(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	a := &app{callerAs: s.callerAs, orders: s.orders, stopping: ctx}
	if err := a.recover(ctx); err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	ready(l.Addr().String())
	server := &http.Server{Handler: s.probes(a.handler()), ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	defer context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		stopped <- server.Shutdown(grace)
	})()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}
