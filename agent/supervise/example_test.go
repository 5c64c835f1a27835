package supervise_test

import (
	"context"
	"fmt"

	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/supervise"
)

// The first thing in main: the agent starts this program again for each command, as the
// small process that owns it.
func Example() {
	supervise.Main()

	a := agent.New(agent.Config{Name: "web01", Dir: "/var/lib/myagent"}) // without Dir commands end with the agent
	if err := a.Load("/etc/myagent/procedures"); err != nil {
		fmt.Println("there are no procedures here")
		return
	}
	_ = a.Connect(context.Background(), "harp.example:7440")
	// Output: there are no procedures here
}
