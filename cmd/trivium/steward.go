package main

import (
	"sync"

	"github.com/trivium-mq/trivium/protocols/admin"
)

// stewardOf returns who answers questions about the cluster once the node is open.
func stewardOf(n *node) func() admin.Cluster {
	return sync.OnceValue(func() admin.Cluster {
		s := n.replicas.Steward()
		if s == nil {
			return nil
		}
		return s
	})
}
