package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// receiveSecret signs what the receiver of a script takes.
var receiveSecret = []byte("0123456789abcdef01234567")

// receive [-plain] NAME starts a receiver of webhooks, of which the variable NAME is the URL, and writes NAME.pem, the certificate to be
// trusted, unless it is plain, and NAME.secret. A message that is signed well is a line of NAME.log: its id and its body. While there is a file NAME.down, it
// answers 503 and keeps nothing.
func cmdReceive(ts *testscript.TestScript, neg bool, args []string) {
	plain := len(args) > 0 && args[0] == "-plain"
	if plain {
		args = args[1:]
	}
	if neg || len(args) != 1 {
		ts.Fatalf("usage: receive [-plain] NAME")
	}
	path := ts.MkAbs(args[0])
	var mu sync.Mutex
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, err := io.ReadAll(r.Body)
		if _, down := os.Stat(path + ".down"); down == nil || err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		id := r.Header.Get("webhook-id")
		sum := hmac.New(sha256.New, receiveSecret)
		_, _ = fmt.Fprintf(sum, "%s.%s.%s", id, r.Header.Get("webhook-timestamp"), body)
		if r.Header.Get("webhook-signature") != "v1,"+base64.StdEncoding.EncodeToString(sum.Sum(nil)) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		f, err := os.OpenFile(path+".log", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = fmt.Fprintln(f, id, strings.TrimSpace(string(body)))
			_ = f.Close()
		}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	if plain {
		s.Start()
	} else {
		s.StartTLS()
		ts.Check(os.WriteFile(path+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o644))
	}
	ts.Defer(s.Close)
	ts.Check(os.WriteFile(path+".secret", []byte("whsec_"+base64.StdEncoding.EncodeToString(receiveSecret)+"\n"), 0o600))
	ts.Setenv(args[0], s.URL+"/harp")
}

// publish NAME serves the file NAME by https, with an ETag of its content; the variable URL is where. It writes NAME.pem, the
// certificate to be trusted. While there is a file NAME.down, it answers 500.
func cmdPublish(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: publish NAME")
	}
	path := ts.MkAbs(args[0])
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, err := os.ReadFile(path)
		if _, down := os.Stat(path + ".down"); down == nil || err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		tag := fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256(content)))
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(content) // who asked may have gone
	}))
	ts.Defer(s.Close)
	ts.Check(os.WriteFile(path+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o644))
	ts.Setenv("URL", s.URL)
}
