package transport_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/memnet"
)

// Who somebody is stands in the certificate, as a URI.
func ExampleParseIdentity() {
	u, err := url.Parse("harp://prod/agent/web01")
	if err != nil {
		fmt.Println(err)
		return
	}
	id, err := transport.ParseIdentity(u)
	fmt.Println(id.Fleet, id.Role, id.Name, err)

	u.Path = "/web01"
	_, err = transport.ParseIdentity(u)
	fmt.Println(errors.Is(err, transport.ErrIdentity))
	// Output:
	// prod agent web01 <nil>
	// true
}

// The files that make a side of a connection; the error names the one that is wrong.
func ExampleLoadTLS() {
	_, err := transport.LoadTLS("web01.crt", "web01.key", "ca.crt")
	fmt.Println(err)
	// Output: transport: certificate: open web01.crt: no such file or directory
}

// A network in memory, for tests: its addresses are names, and who dials says who it
// is.
func Example_memory() {
	network := memnet.New()
	l, err := network.Listen("dispatcher:7440", transport.Identity{Fleet: "test", Role: transport.RoleDispatcher, Name: "main"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	dial := network.Dialer(transport.Identity{Fleet: "test", Role: transport.RoleCaller, Name: "ada"})
	conn, err := dial(context.Background(), "dispatcher:7440")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(conn.RemoteAddr(), conn.Close())
	_, err = dial(context.Background(), "elsewhere:7440")
	fmt.Println(err != nil)
	// Output:
	// dispatcher:7440 <nil>
	// true
}
