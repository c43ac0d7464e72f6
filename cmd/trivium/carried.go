package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/protocols/listener"
)

// acceptCarried takes the connections that other nodes carry here, until the node
// stops.
func (n *node) acceptCarried() {
	web := newQueue(n.address("http"))
	defer web.Close()
	var welcomes sync.WaitGroup
	defer welcomes.Wait()
	welcomes.Go(func() { _ = n.gate.Serve(web) }) // ends with the gate
	for {
		c, meta, err := n.replicas.AcceptTunnel()
		if err != nil {
			return // closed
		}
		welcomes.Go(func() {
			if err := n.welcome(c, meta, web); err != nil {
				n.log.Debug().Err(err).Msg("a connection of another node is refused")
				_ = c.SetWriteDeadline(time.Now().Add(time.Second))
				_, _ = c.Write([]byte{carryRefused})
				_ = c.Close()
			}
		})
	}
}

// address is where this node listens for a protocol, if it does.
func (n *node) address(protocol string) net.Addr {
	for _, f := range n.fronts {
		if f.Protocol == protocol {
			return f.l.Addr()
		}
	}
	return &net.TCPAddr{}
}

// welcome hands a carried connection to the server of its protocol.
func (n *node) welcome(c net.Conn, meta []byte, web *queue) error {
	name, rest, ok := bytes.Cut(meta, []byte("\n"))
	if !ok {
		return errors.New("malformed greeting")
	}
	peer, err := listener.ReadPeer(rest)
	if err != nil {
		return err
	}
	if n.edge.get() == nil {
		return errors.New("this node does not serve now")
	}
	protocol := string(name)
	var q *queue
	if protocol == "http" {
		q = web
	} else if l := n.lasting[protocol]; l != nil {
		q = l.older
	} else {
		return fmt.Errorf("no listener for %q here", protocol)
	}
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte{carryTaken}); err != nil {
		_ = c.Close()
		return nil
	}
	if err := c.SetWriteDeadline(time.Time{}); err != nil {
		_ = c.Close()
		return nil
	}
	carried, err := n.sockets.carrier(protocol, &n.edge.carried).Carry(c, peer)
	if err != nil || !q.put(carried) {
		_ = c.Close() // it was told that it is taken: the client connects anew
	}
	return nil
}
