package devca_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

// An authority in a folder, and a certificate in files.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "harp-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()

	ca, err := devca.Open(filepath.Join(dir, "authority"), "dev")
	if err != nil {
		fmt.Println(err)
		return
	}
	err = ca.WriteFiles(dir, "web01", transport.Identity{Role: transport.RoleAgent, Name: "web01"})
	fmt.Println(err)

	tc, err := transport.LoadTLS(filepath.Join(dir, "web01.crt"), filepath.Join(dir, "web01.key"), filepath.Join(dir, "ca.crt"))
	if err != nil {
		fmt.Println(err)
		return
	}
	id, err := transport.IdentityOf(tc.Certificates[0].Leaf)
	fmt.Println(id, err)
	// Output:
	// <nil>
	// harp://dev/agent/web01 <nil>
}

// Without a folder all is in memory.
func ExampleCA_TLS() {
	ca, err := devca.Open("", "test")
	if err != nil {
		fmt.Println(err)
		return
	}
	tc, err := ca.TLS(transport.Identity{Role: transport.RoleCaller, Name: "ada"})
	fmt.Println(len(tc.Certificates), err)
	// Output: 1 <nil>
}
