// Command agent is an agent of your own: a program that offers procedures written
// in Go and stays connected to a dispatcher until it is stopped.
//
// Try it with the certificates and the dispatcher of harp dev: in one terminal
//
//	go run ./cmd/harp dev
//
// in another
//
//	go run ./examples/agent -dev .harp-dev
//
// and in a third
//
//	go run ./cmd/harp call web01 files.checksum folder=$PWD/docs
package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"flag"
	"io"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

// Checksum is the procedure this agent offers. Go callers share this declaration; for
// all others a schema is made from the types.
var Checksum = harp.NewStreamProc[ChecksumArgs, Sum, ChecksumResult]("files.checksum",
	"Compute the SHA-256 of the files in a folder",
	"One record for each file, in the order of their names. Folders within it are",
	"skipped.")

// ChecksumArgs are its arguments. A field without omitempty is required.
type ChecksumArgs struct {
	Folder  string `json:"folder" jsonschema:"absolute path of the folder"`
	Pattern string `json:"pattern,omitempty" jsonschema:"only files whose names match, such as *.log"`
}

// Sum is one of its records.
type Sum struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// ChecksumResult is what it returns.
type ChecksumResult struct {
	Files int `json:"files"`
}

func checksum(ctx context.Context, args ChecksumArgs, emit func(Sum) error) (ChecksumResult, error) {
	entries, err := os.ReadDir(args.Folder)
	if errors.Is(err, fs.ErrNotExist) {
		// The type and the data let the caller decide what to do about it.
		return ChecksumResult{}, agent.Errorf("not_found", args, "there is no folder %s", args.Folder)
	}
	if err != nil {
		return ChecksumResult{}, err
	}
	var result ChecksumResult
	for _, e := range entries {
		if match, err := filepath.Match(args.Pattern, e.Name()); err != nil {
			return result, agent.Errorf("bad_pattern", args, "%w", err)
		} else if !e.Type().IsRegular() || args.Pattern != "" && !match {
			continue
		}
		// The context ends when the job is cancelled or a time limit is exceeded;
		// its cause says which.
		if ctx.Err() != nil {
			return result, context.Cause(ctx)
		}
		sum, err := sumOf(filepath.Join(args.Folder, e.Name()))
		if err != nil {
			return result, err
		}
		if err := emit(Sum{Name: e.Name(), SHA256: sum}); err != nil {
			return result, err
		}
		result.Files++
	}
	return result, nil
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func main() {
	var c config
	flag.StringVar(&c.name, "name", "web01", "name of the host, as in the certificate")
	flag.StringVar(&c.dispatcher, "dispatcher", "127.0.0.1:7440", "host:port of the dispatcher")
	flag.StringVar(&c.cert, "cert", "web01.crt", "file of the certificate")
	flag.StringVar(&c.key, "key", "web01.key", "file of its key")
	flag.StringVar(&c.ca, "ca", "ca.crt", "file of the authorities to trust")
	flag.StringVar(&c.dev, "dev", "", "folder of a harp dev, whose authority then makes the certificate")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c); err != nil {
		log.Fatal(err)
	}
}

type config struct{ name, dispatcher, cert, key, ca, dev string }

// run serves calls until ctx ends.
func run(ctx context.Context, c config) error {
	tc, err := c.tls()
	if err != nil {
		return err
	}
	a := agent.New(agent.Config{
		Name:   c.name,
		TLS:    tc,
		Labels: map[string]string{"example": "agent"},
	})
	agent.HandleStream(a, Checksum, checksum,
		agent.Idempotent(), agent.SilenceTimeout(10*time.Minute), agent.MaxExecTime(time.Hour))
	return a.Connect(ctx, c.dispatcher)
}

// tls loads, or has made, the certificate that says which host this is.
func (c config) tls() (*tls.Config, error) {
	if c.dev == "" {
		return transport.LoadTLS(c.cert, c.key, c.ca)
	}
	ca, err := devca.Open(filepath.Join(c.dev, "certs"), "dev")
	if err != nil {
		return nil, err
	}
	return ca.TLS(transport.Identity{Role: transport.RoleAgent, Name: c.name})
}
