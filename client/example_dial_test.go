package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/client"
	"github.com/harpcaller/harp/transport"
)

// A dispatcher elsewhere is reached over TLS, with a certificate on each side.
func ExampleDial() {
	ctx := context.Background()
	tc, err := transport.LoadTLS("ada.crt", "ada.key", "ca.crt")
	if err != nil {
		fmt.Println("no certificate here")
		return
	}
	caller, err := client.Dial(ctx, "harp.example:7440", client.Config{TLS: tc})
	if err != nil {
		fmt.Println(err) // harp.ErrUnavailable, harp.ErrDenied
		return
	}
	defer caller.Close()
	fmt.Println(caller.Ping(ctx))
	// Output: no certificate here
}

// Where nobody answers, the error says at which stage, and that nothing ran.
func ExampleDial_unavailable() {
	_, err := client.Dial(context.Background(), "127.0.0.1:1", client.Config{TLS: &tls.Config{MinVersion: tls.VersionTLS13}})
	var host *harp.HostError
	if errors.As(err, &host) {
		fmt.Println("stage:", host.Stage)
	}
	fmt.Println(errors.Is(err, harp.ErrUnavailable), harp.FaultOf(err), harp.RanOf(err))
	// Output:
	// stage: dial
	// true network no
}
