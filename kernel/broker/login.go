package broker

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/auth"
)

// Authenticate checks a name and password. remote matters for the rule that
// the default user comes from loopback only, and for how often somebody there
// has been wrong: failures make it slow, and a refusal takes a second at least.
// It fails with CodeAccessRefused, CodeLimit if too many came from there, or ctx's
// error. user may carry the tenant as "tenant:user" where the protocol has no
// field for it (tenant == ""). Whether the tenant exists, and the user has access
// to it, is for Connect to say.
func (b *Broker) Authenticate(ctx context.Context, tenant, user, password string, remote net.Addr) (kernel.Identity, error) {
	tenant, user = splitUser(tenant, user)
	if _, err := b.Login(ctx, user, password, remote); err != nil {
		return kernel.Identity{}, err
	}
	return kernel.Identity{User: user, Tenant: tenant}, nil
}

// splitUser takes the tenant out of "tenant:user", at the last colon, as
// RabbitMQ does.
func splitUser(tenant, user string) (string, string) {
	if tenant != "" {
		return tenant, user
	}
	if i := strings.LastIndexByte(user, ':'); i >= 0 {
		return user[:i], user[i+1:]
	}
	return kernel.DefaultTenant, user
}

// Login is Authenticate without regard to tenants, for those who administer. It
// returns the user, who may not be changed.
func (b *Broker) Login(ctx context.Context, user, password string, remote net.Addr) (*kernel.User, error) {
	ctx, cancel := b.untilStop(ctx)
	defer cancel()
	find := func() (*kernel.User, bool) { return b.directory().User(user) } // as it is in its turn
	return b.access.login(ctx, user, password, remote, find, func() error { return nil })
}

// login checks a password, in its turn. find looks the user up then; unsure says why what it
// has found does not tell that the login is wrong, nil if it does.
func (a *access) login(ctx context.Context, user, password string, remote net.Addr, find func() (*kernel.User, bool), unsure func() error) (*kernel.User, error) {
	ctx, late := context.WithTimeoutCause(ctx, a.throttle.Patience(), errTooManyLogins)
	defer late()
	attempt, err := a.attempt(ctx, user, remote)
	if err != nil {
		return nil, err
	}
	var u *kernel.User
	if mayComeFrom(user, remote) {
		u, _ = find()
	}
	ok, err := a.verifier.Check(ctx, u, password)
	switch {
	case err != nil:
		attempt.Cancel()
		return nil, errLoginCut(ctx, err)
	case ok:
		attempt.Succeed()
		return u, nil
	}
	if why := unsure(); why != nil && mayComeFrom(user, remote) {
		if u == nil {
			attempt.Cancel()
		} else {
			attempt.Fail(ctx) // it may be a guess
		}
		return nil, why
	}
	return nil, a.failed(ctx, attempt, user, remote)
}

// untilStop makes a context end with the broker, too.
func (b *Broker) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(b.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// attempt waits for the time that failures so far cost.
func (a *access) attempt(ctx context.Context, user string, remote net.Addr) (*auth.Attempt, error) {
	attempt, err := a.throttle.Begin(ctx, user, remote)
	if err == nil || kernel.CodeOf(err) == kernel.CodeLimit {
		return attempt, err
	}
	return nil, errLoginCut(ctx, err)
}

// errTooManyLogins is why a login is not looked at in time.
var errTooManyLogins = errors.New("too many logins at one time")

func errLoginCut(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errTooManyLogins) {
		return kernel.Errorf(kernel.CodeLimit, "", "", "%v", errTooManyLogins)
	}
	return kernel.Errorf(kernel.CodeUnavailable, "", "", "the login was cut short: %v", err)
}

// failed notes that an attempt was wrong, and returns when that may be told.
func (a *access) failed(ctx context.Context, attempt *auth.Attempt, user string, remote net.Addr) error {
	banned := attempt.Fail(ctx)
	from := "nowhere"
	if remote != nil {
		from = remote.String()
	}
	a.refusals.Info().Str("user", shownName(user)).Str("peer", from).Msg("login refused")
	if banned {
		a.log.Warn().Str("peer", from).Msg("logins from this address are refused for a while: too many were wrong")
	}
	return refusedLogin(user)
}

// shownName cuts a name that may not be one.
func shownName(user string) string {
	if len(user) > kernel.MaxName {
		return user[:kernel.MaxName] + "..."
	}
	return user
}

// Admit is Authenticate for a user whom something else has authenticated, such
// as a certificate.
func (b *Broker) Admit(tenant, user string, remote net.Addr) (kernel.Identity, error) {
	tenant, user = splitUser(tenant, user)
	if _, ok := b.directory().User(user); !ok || !mayComeFrom(user, remote) {
		return kernel.Identity{}, refusedLogin(user)
	}
	return kernel.Identity{User: user, Tenant: tenant}, nil
}

func mayComeFrom(user string, remote net.Addr) bool {
	return !auth.LoopbackOnly(user) || auth.Loopback(remote)
}

func refusedLogin(user string) error {
	return kernel.Errorf(kernel.CodeAccessRefused, "user", shownName(user), "the name or password is wrong, or the user may not come from there")
}

// Anonymous admits a connection without credentials, if the settings allow
// that from remote; else CodeAccessRefused.
func (b *Broker) Anonymous(tenant string, remote net.Addr) (kernel.Identity, error) {
	if tenant == "" {
		tenant = kernel.DefaultTenant
	}
	user, near := b.settings.AnonymousUser, false
	if user == "" {
		user, near = auth.DefaultUser, true
	}
	_, known := b.directory().User(user)
	if !b.settings.Anonymous || !known || near && !auth.Loopback(remote) {
		return kernel.Identity{}, kernel.Errorf(kernel.CodeAccessRefused, "user", "", "credentials are required")
	}
	return kernel.Identity{User: user, Tenant: tenant, Anonymous: true}, nil
}
