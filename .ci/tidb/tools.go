//go:build tools

// Package tidb names the program that .ci/tidb/build makes, so that go.mod and go.sum hold all that it needs.
package tidb

import _ "github.com/pingcap/tidb/cmd/tidb-server"
