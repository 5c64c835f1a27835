// Command nats imports github.com/nats-io/nats.go and does nothing.
package main

import _ "github.com/nats-io/nats.go"

func main() {}
