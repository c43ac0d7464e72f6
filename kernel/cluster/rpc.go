package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	grpcpeer "google.golang.org/grpc/peer"

	"github.com/trivium-mq/trivium/metasvc/catalog"
	"github.com/trivium-mq/trivium/metasvc/transport"
)

// The gRPC service between nodes, with JSON messages: fields that one side does not
// know are left out, so that versions can be mixed.
const (
	serviceName   = "trivium.cluster.v1.Node"
	methodMeet    = "/" + serviceName + "/Meet"
	methodJoin    = "/" + serviceName + "/Join"
	methodOperate = "/" + serviceName + "/Operate"
	methodSegment = "/" + serviceName + "/Segment"
)

const (
	maxMessage = 1 << 20 // bytes
	maxStreams = 64      // calls at a time on one connection
	// keepaliveTime is how long a connection may be silent before it is tried.
	keepaliveTime = 10 * time.Second
)

type meetRequest struct{ Info Info }

type meetReply struct {
	Info    Info
	Refused *Refusal
}

type joinRequest struct {
	Fronts  []catalog.Front
	Version string
}

type joinReply struct {
	Welcome *Welcome
	Leader  string // address of whom to ask instead
	Refused *Refusal
}

type segmentRequest struct {
	Group uint32
	ID    uint64
	From  int64 // byte
}

// chunk is a message of bytes that are no JSON.
type chunk struct{ b []byte }

// codec is how messages are written.
type codec struct{}

func (codec) Name() string { return "trivium" }

func (codec) Marshal(v any) ([]byte, error) {
	if c, ok := v.(*chunk); ok {
		return c.b, nil
	}
	return json.Marshal(v)
}

func (codec) Unmarshal(data []byte, v any) error {
	if c, ok := v.(*chunk); ok {
		c.b = append(c.b[:0], data...)
		return nil
	}
	return json.Unmarshal(data, v)
}

// trust is gRPC's view of a connection of which the hello has said who is there.
type trust struct{}

type caller struct{ hello transport.Hello }

func (caller) AuthType() string { return "hello" }

func (trust) ClientHandshake(_ context.Context, _ string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, caller{}, nil
}

func (trust) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	in, ok := c.(*transport.Conn)
	if !ok {
		return nil, nil, errors.New("cluster: a connection without hello")
	}
	return c, caller{in.Hello}, nil
}

func (trust) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "hello"}
}
func (trust) Clone() credentials.TransportCredentials { return trust{} }
func (trust) OverrideServerName(string) error         { return nil }

// callerOf is who has made a call.
func callerOf(ctx context.Context) (Identity, error) {
	if p, ok := grpcpeer.FromContext(ctx); ok {
		if c, ok := p.AuthInfo.(caller); ok {
			return c.hello.From, nil
		}
	}
	return Identity{}, errors.New("cluster: nobody calls")
}

// rpcServer answers calls.
type rpcServer struct {
	grpc *grpc.Server
	done chan struct{}
}

func serveRPC(n *Node, l net.Listener) *rpcServer {
	return serveGRPC(l, n, maxMessage, &grpc.ServiceDesc{
		ServiceName: serviceName,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			method(n, "Meet", n.answerMeet), method(n, "Join", n.answerJoin), method(n, "Operate", n.answerOperate),
			method(n, "Barrier", n.answerBarrier),
		},
		Streams: []grpc.StreamDesc{{StreamName: "Segment", ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error { return n.answerSegment(s) }}},
	}, grpc.ForceServerCodec(codec{}), grpc.MaxConcurrentStreams(maxStreams))
}

// serveGRPC serves a service, of messages of at most that many bytes, on the connections
// of a listener.
func serveGRPC(l net.Listener, n *Node, most int, service *grpc.ServiceDesc, more ...grpc.ServerOption) *rpcServer {
	s := &rpcServer{done: make(chan struct{}), grpc: grpc.NewServer(append(more,
		grpc.Creds(trust{}), grpc.MaxRecvMsgSize(most), grpc.MaxSendMsgSize(most),
		grpc.MaxHeaderListSize(16<<10), grpc.ConnectionTimeout(5*time.Second), grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTime / 2}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveTime / 2, PermitWithoutStream: true}),
	)...)}
	s.grpc.RegisterService(service, n)
	go func() {
		defer close(s.done)
		_ = s.grpc.Serve(l) // until close
	}()
	return s
}

// method describes a method whose messages are Req and Resp. A node of no cluster, or
// of another one, may only join and show itself.
func method[Req, Resp any](n *Node, name string, do func(context.Context, Identity, *Req) (*Resp, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		req := new(Req)
		if err := decode(req); err != nil {
			return nil, err
		}
		from, err := callerOf(ctx)
		if err != nil {
			return nil, err
		}
		if cluster := n.Self().Cluster; (cluster == "" || from.Cluster != cluster) && name != "Join" {
			return nil, errors.New("cluster: not for a stranger")
		}
		return do(ctx, from, req)
	}}
}

func (s *rpcServer) close() {
	s.grpc.Stop()
	<-s.done
}

// links are the connections to other nodes for calls, or for clients.
type links struct {
	node   *Node
	kind   transport.Kind
	open   func(net.Conn) (*grpc.ClientConn, error)
	mu     sync.Mutex
	list   map[string]*link // by Raft name
	closed bool
}

// link is one connection; it is not made anew when it breaks.
type link struct {
	who     Identity
	address string
	conn    *grpc.ClientConn
}

func newLinks(n *Node, k transport.Kind, open func(net.Conn) (*grpc.ClientConn, error)) *links {
	return &links{node: n, kind: k, open: open, list: map[string]*link{}}
}

// call calls a method of the node of a Raft name, or of whoever is at the address if
// that is "". It returns who has answered. When the connection is refused the error is
// a [*Refusal].
func (l *links) call(ctx context.Context, raftID, address, method string, req, reply any) (Identity, error) {
	k, err := l.get(ctx, raftID, address)
	if err != nil {
		return Identity{}, err
	}
	err = k.conn.Invoke(ctx, method, req, reply)
	if raftID == "" {
		_ = k.conn.Close()
	} else if err != nil {
		l.forget(raftID, k)
	}
	if err != nil {
		return k.who, fmt.Errorf("node %s: %w", k.who.Node, err)
	}
	return k.who, nil
}

// get returns a connection; one that is for no Raft name belongs to the caller.
func (l *links) get(ctx context.Context, raftID, address string) (*link, error) {
	if k := l.known(raftID, address); k != nil {
		return k, nil
	}
	c, who, err := l.node.mux.Dial(ctx, address, transport.Hello{Kind: l.kind, To: raftID})
	if err != nil {
		return nil, err
	}
	k := &link{who: who, address: address}
	if k.conn, err = l.open(c); err != nil {
		_ = c.Close()
		return nil, err
	}
	if raftID == "" {
		return k, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = k.conn.Close()
		return nil, ErrClosed
	}
	if old := l.list[raftID]; old != nil {
		if old.address == address && old.who.Boot == who.Boot { // somebody else was quicker
			_ = k.conn.Close()
			return old, nil
		}
		_ = old.conn.Close()
	}
	l.list[raftID] = k
	return k, nil
}

// known returns the connection to a node at an address, nil if there is none.
func (l *links) known(raftID, address string) *link {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.list[raftID]; k != nil && k.address == address {
		return k
	}
	return nil
}

// newCaller runs gRPC for calls on a connection.
func newCaller(c net.Conn) (*grpc.ClientConn, error) {
	return newClient(c, grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{}), grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
}

// newClient runs gRPC on a connection, once.
func newClient(c net.Conn, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	once := make(chan net.Conn, 1)
	once <- c
	conn, err := grpc.NewClient("passthrough:///node", append(more,
		grpc.WithTransportCredentials(trust{}),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case c := <-once:
				return c, nil
			default:
				return nil, errors.New("the connection has ended")
			}
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTime / 2}),
		grpc.WithIdleTimeout(0), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
	)...)
	if err == nil {
		conn.Connect()
	}
	return conn, err
}

// forget closes a connection that has failed.
func (l *links) forget(raftID string, k *link) {
	l.mu.Lock()
	if l.list[raftID] == k {
		delete(l.list, raftID)
	}
	l.mu.Unlock()
	_ = k.conn.Close()
}

// check closes a connection that has ended.
func (l *links) check(raftID string, k *link) {
	if k.conn.GetState() != connectivity.Ready {
		l.forget(raftID, k)
	}
}

// drop closes the connection to a node whose process has been replaced.
func (l *links) drop(raftID string) {
	l.mu.Lock()
	k := l.list[raftID]
	l.mu.Unlock()
	if k != nil {
		l.forget(raftID, k)
	}
}

func (l *links) close() {
	l.mu.Lock()
	l.closed = true
	list := l.list
	l.list = map[string]*link{}
	l.mu.Unlock()
	for _, k := range list {
		_ = k.conn.Close()
	}
}
