// Command webapp is a web service that deploys to hosts, with a dispatcher inside itself.
//
//	go run ./examples/webapp
//	curl -u ana: -H 'Idempotency-Key: release-7' -d version=1.4 http://127.0.0.1:8080/hosts/web01/deploy
//	curl -u ana: http://127.0.0.1:8080/jobs/ID
//	curl -u ana: -N http://127.0.0.1:8080/jobs/ID/log
//
// This file is the service; host.go is what runs on its hosts.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/badger"
)

// app answers the web. If the dispatcher were elsewhere, callerAs would return a Caller of client.Dial.
type app struct {
	callerAs func(user string) *harp.Caller // jobs and events name the user
	orders   string                         // the folder of the orders that may not have been called yet
	stopping context.Context                // ends when the service begins to stop
}

func (a *app) handler() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, fn := range map[string]func(*http.Request, *harp.Caller) (any, error){
		"POST /hosts/{host}/deploy": a.deploy, "GET /jobs": list, "GET /jobs/{id}": read, "DELETE /jobs/{id}": cancel,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			v, err := fn(r, a.callerAs(userOf(r)))
			answer(w, r, v, err)
		})
	}
	mux.HandleFunc("GET /jobs/{id}/log", a.follow)
	return mux
}

// answer writes JSON; that of an error says whose fault it is and whether the procedure ran.
func answer(w http.ResponseWriter, r *http.Request, v any, err error) {
	status := harp.HTTPStatus(err)
	if err != nil {
		v = map[string]any{"error": harp.FailureOf(err)}
	} else if r.Method != http.MethodGet {
		status = http.StatusAccepted
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}

// userOf is who asks. A real service checks the password, or a session.
func userOf(r *http.Request) string {
	user, _, _ := r.BasicAuth()
	return cmp.Or(user, "anonymous")
}

// order is a deployment that somebody asked for, under the id of its job. It is kept in a file, where a real
// service would have a row in its database, from before the call is made until it is known to be accepted.
type order struct{ ID, User, Host, Version, Key string }

func (a *app) file(o order) string { return filepath.Join(a.orders, o.ID) }

// deploy starts a job and answers with its id at once.
func (a *app) deploy(r *http.Request, _ *harp.Caller) (any, error) {
	o := order{ID: harp.NewID(), User: userOf(r), Host: r.PathValue("host"), Version: r.FormValue("version"), Key: r.Header.Get("Idempotency-Key")}
	row, err := json.Marshal(o)
	if err := errors.Join(err, os.WriteFile(a.file(o), row, 0o600)); err != nil {
		return nil, err
	}
	job, err := a.call(r.Context(), o)
	if err != nil {
		return nil, err
	}
	return map[string]any{"id": job.ID(), "existed": job.Existed()}, nil
}

// call makes the call of an order. Deployments of one host wait for each other.
func (a *app) call(ctx context.Context, o order) (*harp.Job, error) {
	opts := []harp.Option{
		harp.JobID(o.ID), harp.Queue(map[string]string{"host": o.Host}), harp.Label("app", "webapp"),
		harp.MaxExecTime(10 * time.Minute), harp.OfflineWait(time.Hour),
	}
	if o.Key != "" {
		opts = append(opts, harp.IdempotencyKey(o.Key, 24*time.Hour))
	}
	job, err := Deploy.Call(ctx, a.callerAs(o.User).Host(o.Host), DeployArgs{Version: o.Version}, opts...)
	if err == nil || harp.RanOf(err) == harp.DidNotRun {
		err = errors.Join(err, os.Remove(a.file(o)))
	}
	return job, err
}

// recover repeats the calls that were not known to be accepted when this process ended. They have the same
// ids, so that each is made only once.
func (a *app) recover(ctx context.Context) error {
	files, err := os.ReadDir(a.orders)
	if err != nil {
		return err
	}
	for _, f := range files {
		var o order
		row, err := os.ReadFile(filepath.Join(a.orders, f.Name()))
		if err = errors.Join(err, json.Unmarshal(row, &o)); err == nil { // otherwise the file was not written completely
			_, err = a.call(ctx, o)
		}
		log.Printf("order %s repeated: error %v", f.Name(), err)
	}
	return nil
}

// read says how a job is doing, and never waits for it.
func read(r *http.Request, caller *harp.Caller) (any, error) {
	job := caller.Job(r.PathValue("id"))
	status, err := job.Status(r.Context())
	if err != nil || !status.State.Ended() {
		return map[string]any{"job": status}, err
	}
	outcome, err := Deploy.Wait(r.Context(), job) // it has ended: there is nothing to wait for
	return map[string]any{"job": status, "result": outcome.Value, "error": harp.FailureOf(outcome.Err)}, err
}

// list lists jobs, newest first, a page at a time.
func list(r *http.Request, caller *harp.Caller) (any, error) {
	return caller.JobsPage(r.Context(), harp.JobFilter{Host: r.FormValue("host"), Limit: 50}, r.FormValue("cursor"))
}

func cancel(r *http.Request, caller *harp.Caller) (any, error) {
	live, err := caller.Job(r.PathValue("id")).Cancel(r.Context())
	return map[string]bool{"live": live}, err
}

// follow sends the log as server-sent events until the job has ended. A browser that lost the
// connection says which line it saw last, and so misses none.
func (a *app) follow(w http.ResponseWriter, r *http.Request) {
	var next uint64
	if last, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64); err == nil {
		next = last + 1
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.stopping, cancel)()
	begun := false
	for record, err := range a.callerAs(userOf(r)).Job(r.PathValue("id")).Follow(ctx, harp.Since(next)) {
		if err != nil && !begun {
			answer(w, r, nil, err)
		}
		if err != nil {
			return // the browser reconnects
		}
		w.Header().Set("Content-Type", "text/event-stream")
		begun = true
		_, _ = fmt.Fprintf(w, "id: %d\ndata: %s\n\n", record.Seq, record.Value)
		if http.NewResponseController(w).Flush() != nil {
			return // it has gone
		}
	}
	_, _ = fmt.Fprint(w, "event: end\ndata: {}\n\n")
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

// run serves HTTP until ctx ends, and tells ready where. Then requests under way are answered before the
// dispatcher stops; jobs continue at their agents.
func run(ctx context.Context, addr, dir string, ready func(addr string)) (err error) {
	a := &app{orders: filepath.Join(dir, "orders"), stopping: ctx}
	if err := os.MkdirAll(a.orders, 0o700); err != nil {
		return err
	}
	st, err := badger.Open(filepath.Join(dir, "data"), nil)
	if err != nil {
		return err
	}
	d, err := dispatcher.Open(ctx, st, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}})
	if err != nil {
		return err
	}
	var hosts sync.WaitGroup
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		disconnect()
		hosts.Wait()
		err = errors.Join(err, within(10*time.Second, d.Shutdown))
	}()
	if err := startHost(connected, &hosts, d, dir); err != nil {
		return err
	}
	a.callerAs = func(user string) *harp.Caller { return d.CallerAs(harp.Principal{Kind: "user", Name: user}) }
	if err := a.recover(ctx); err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	ready(l.Addr().String())
	mux := a.handler()
	healthz, readyz := dispatcher.HealthHandler(d)
	mux.Handle("GET /healthz", healthz)
	mux.Handle("GET /readyz", readyz)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		return within(5*time.Second, server.Shutdown)
	}
}

// within limits how long a shutdown may take; it begins when other contexts have ended.
func within(most time.Duration, shutdown func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	return shutdown(ctx)
}
