// Command grpc imports google.golang.org/grpc and does nothing.
package main

import _ "google.golang.org/grpc"

func main() {}
