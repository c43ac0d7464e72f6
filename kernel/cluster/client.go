package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/transport"
)

// Clients of a node that another one serves have connections of their own between the
// two, so that what clients send stands in the way of nothing else: a stream for each
// client, and a call for logins.
const (
	clientService = "trivium.cluster.v1.Clients"
	methodClient  = "/" + clientService + "/Client"
	methodLogin   = "/" + clientService + "/Login"
)

const (
	// maxClientStreams bounds the clients, and logins, of one node.
	maxClientStreams = 1 << 17
	// clientWindow is how many bytes of a stream may be under way and not taken by the
	// other end, and connWindow how many of all streams of a connection may be on the
	// wire: one that is not taken does not count there, so that it is in nobody's way.
	clientWindow = 512 << 10
	connWindow   = 8 << 20
)

// Stream carries messages, in order, between a node that holds a client's socket and the
// one that serves it. One goroutine may send and another one receive. A message is at
// most MaxStreamMessage bytes long.
type Stream interface {
	// Send waits while the other end takes nothing. b is not kept.
	Send(b []byte) error
	// Recv waits for the next message, which is valid until the next Recv. io.EOF says
	// that the end that serves has ended the stream in good order.
	Recv() ([]byte, error)
	// Close ends the stream for both ends at once, whoever sends or receives.
	// Idempotent.
	Close()
}

// protocols are those whose clients a node of this version takes streams of.
var protocols = []kernel.Protocol{"amqp", "mqtt", "kafka"}

// smallMessage is how large a buffer an idle stream may keep, in bytes.
const smallMessage = 4 << 10

// maxQuestion is the longest question, and answer, of CallLogin, in bytes: 9 MiB that a
// coordinator of a group has to remember, with what belongs to it. Earlier versions take
// maxMessage; what is longer they are not asked.
const maxQuestion = 9<<20 + 64<<10

// MaxStreamMessage is the longest message of a Stream, in bytes.
const MaxStreamMessage = maxMessage

// ClientServer serves clients of other nodes.
type ClientServer interface {
	// ServeClient serves a client of a node, by its Raft name; the stream ends when it
	// returns, at this end in good order if the error is nil.
	ServeClient(from string, s Stream) error
	// AnswerLogin answers what a node has asked with Node.CallLogin.
	AnswerLogin(ctx context.Context, from string, req []byte) ([]byte, error)
}

// OnClients sets who serves clients of other nodes. Until it is called, they are refused.
func (n *Node) OnClients(s ClientServer) { n.clients.server.Store(&s) }

// OpenClient opens a stream to the node of that Raft name, for one client of this node.
// ctx bounds the opening only. The node learns of it with the first message.
func (n *Node) OpenClient(ctx context.Context, raftID string) (Stream, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	s := &outgoing{cancel: cancel}
	err := n.clients.with(ctx, raftID, func(c *grpc.ClientConn) (err error) {
		s.stream, err = c.NewStream(life, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, methodClient,
			grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage))
		return err
	})
	if !stop() {
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return s, nil
}

// CallLogin asks the node of that Raft name about a login.
func (n *Node) CallLogin(ctx context.Context, raftID string, req []byte) ([]byte, error) {
	var reply chunk
	err := n.clients.with(ctx, raftID, func(c *grpc.ClientConn) error {
		return c.Invoke(ctx, methodLogin, &chunk{b: req}, &reply)
	})
	return reply.b, err
}

// clients are both ends of what goes on for clients of other nodes.
type clients struct {
	node   *Node
	links  *links
	rpc    *rpcServer
	server atomic.Pointer[ClientServer]
	work   sync.WaitGroup // of streams that are served

	mu    sync.Mutex
	dials map[string]*clientDial // under way, by Raft name
}

// clientDial is a connection that is being made, for all who wait for it.
type clientDial struct {
	done chan struct{}
	link *link
	err  error
}

func newClients(n *Node) *clients {
	return &clients{node: n, dials: map[string]*clientDial{}, links: newLinks(n, transport.KindClient, func(c net.Conn) (*grpc.ClientConn, error) {
		return newClient(c, grpc.WithInitialWindowSize(clientWindow), grpc.WithInitialConnWindowSize(connWindow), grpc.WithDisableRetry(),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(plain{}), grpc.MaxCallRecvMsgSize(maxQuestion), grpc.MaxCallSendMsgSize(maxQuestion)))
	})}
}

// with does something on the connection to a node; if that has ended, on a new one.
func (c *clients) with(ctx context.Context, raftID string, do func(*grpc.ClientConn) error) error {
	for again := false; ; again = true {
		k, err := c.link(ctx, raftID)
		if err != nil {
			return err
		}
		if err = do(k.conn); err == nil {
			return nil
		}
		c.links.check(raftID, k)
		if again || status.Code(err) != codes.Unavailable || ctx.Err() != nil {
			return fmt.Errorf("node %s: %w", k.who.Node, err)
		}
	}
}

// link returns the connection to a node, made by one of those who want it.
func (c *clients) link(ctx context.Context, raftID string) (*link, error) {
	address, err := c.node.resolve(raftID)
	if err != nil {
		return nil, err
	}
	if k := c.links.known(raftID, address); k != nil {
		return k, nil
	}
	c.mu.Lock()
	d := c.dials[raftID]
	if d == nil {
		d = &clientDial{done: make(chan struct{})}
		c.dials[raftID] = d
		c.mu.Unlock()
		d.link, d.err = c.links.get(context.WithoutCancel(ctx), raftID, address) // others wait for it
		c.mu.Lock()
		delete(c.dials, raftID)
		close(d.done)
	}
	c.mu.Unlock()
	select {
	case <-d.done:
		return d.link, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *clients) serve(l net.Listener) {
	c.rpc = serveGRPC(l, c.node, maxQuestion, &grpc.ServiceDesc{
		ServiceName: clientService,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Login", Handler: c.answerLogin}},
		Streams: []grpc.StreamDesc{{StreamName: "Client", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			return c.answerClient(s)
		}}},
	}, grpc.ForceServerCodecV2(plain{}), grpc.MaxConcurrentStreams(maxClientStreams),
		grpc.InitialWindowSize(clientWindow), grpc.InitialConnWindowSize(connWindow))
}

// served is who serves clients, for a caller who may ask.
func (c *clients) served(ctx context.Context) (ClientServer, string, error) {
	from, err := callerOf(ctx)
	if err != nil {
		return nil, "", err
	}
	if from.Cluster == "" || from.Cluster != c.node.Self().Cluster || !c.node.knows(from) {
		return nil, "", noMember(from)
	}
	s := c.server.Load()
	if s == nil {
		return nil, "", status.Error(codes.Unavailable, "cluster: this node serves no clients of others yet")
	}
	return *s, from.Raft, nil
}

func (c *clients) answerLogin(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var req chunk
	if err := decode(&req); err != nil {
		return nil, err
	}
	s, from, err := c.served(ctx)
	if err != nil {
		return nil, err
	}
	b, err := s.AnswerLogin(ctx, from, req.b)
	return &chunk{b: b}, err
}

// answerClient ends when the client has been served, or the stream is closed.
func (c *clients) answerClient(in grpc.ServerStream) error {
	server, from, err := c.served(in.Context())
	if err != nil {
		return err
	}
	s := &incoming{stream: in, closed: make(chan struct{})}
	done := make(chan error, 1)
	c.work.Go(func() { done <- server.ServeClient(from, s) })
	select {
	case err := <-done:
		return err
	case <-s.closed:
		return status.Error(codes.Aborted, "cluster: the stream was closed")
	}
}

func (c *clients) close() {
	c.links.close()
	c.rpc.close()
	c.work.Wait()
}

// outgoing is the end of a stream that has opened it.
type outgoing struct {
	stream grpc.ClientStream
	cancel context.CancelFunc
	in     chunk
}

// Send implements Stream.
func (s *outgoing) Send(b []byte) error { return s.stream.SendMsg(&chunk{b: b}) }

// Recv implements Stream.
func (s *outgoing) Recv() ([]byte, error) {
	err := s.stream.RecvMsg(&s.in)
	return s.in.b, err
}

// Close implements Stream.
func (s *outgoing) Close() { s.cancel() }

// incoming is the end of a stream that serves.
type incoming struct {
	stream grpc.ServerStream
	in     chunk
	once   sync.Once
	closed chan struct{}
}

// Send implements Stream.
func (s *incoming) Send(b []byte) error { return s.stream.SendMsg(&chunk{b: b}) }

// Recv implements Stream.
func (s *incoming) Recv() ([]byte, error) {
	err := s.stream.RecvMsg(&s.in)
	return s.in.b, err
}

// Close implements Stream: the end of the call ends the stream.
func (s *incoming) Close() { s.once.Do(func() { close(s.closed) }) }

// plain is how chunks are written, by copies in buffers that gRPC uses again.
type plain struct{}

func (plain) Name() string { return "trivium" }

func (plain) Marshal(v any) (mem.BufferSlice, error) {
	c, ok := v.(*chunk)
	if !ok {
		return nil, fmt.Errorf("cluster: a message of type %T", v)
	}
	return mem.BufferSlice{mem.Copy(c.b, mem.DefaultBufferPool())}, nil
}

func (plain) Unmarshal(data mem.BufferSlice, v any) error {
	c, ok := v.(*chunk)
	if !ok {
		return fmt.Errorf("cluster: a message of type %T", v)
	}
	if n := data.Len(); n <= smallMessage && cap(c.b) > smallMessage {
		c.b = nil // what follows a burst is small, and then there may be nothing for long
	}
	c.b = slices.Grow(c.b[:0], data.Len())[:data.Len()]
	data.CopyTo(c.b)
	return nil
}
