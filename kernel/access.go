package kernel

// Tenant is a name space of exchanges, queues, topics, groups and sessions.
type Tenant struct {
	Name        string
	Description string
	Tags        []string
}

// The tags that mean something to the broker; users may have others.
const (
	TagAdministrator = "administrator" // may change users, tenants and permissions
	TagMonitoring    = "monitoring"    // may see everything
	TagPolicymaker   = "policymaker"   // may change policies in his tenants
	TagManagement    = "management"    // may see what his permissions reach
)

// User is somebody who may log in. One without Password and Scram can be
// authenticated by others only, such as by a client certificate.
type User struct {
	Name     string
	Tags     []string
	Password PasswordHash
	Scram    []ScramKey // by mechanism, at most one of each
}

// HasTag reports whether the user has a tag.
func (u *User) HasTag(tag string) bool {
	for _, t := range u.Tags {
		if t == tag {
			return true
		}
	}
	return false
}

// HashAlgorithm says how a password hash was made.
type HashAlgorithm string

// The password hashes. The last three are RabbitMQ's: four bytes of salt, then
// the digest of salt and password; they are taken over from there.
const (
	HashNone   HashAlgorithm = ""
	HashBcrypt HashAlgorithm = "bcrypt"
	HashSHA256 HashAlgorithm = "rabbit_password_hashing_sha256"
	HashSHA512 HashAlgorithm = "rabbit_password_hashing_sha512"
	HashMD5    HashAlgorithm = "rabbit_password_hashing_md5"
)

// PasswordHash is a password as it is stored; the zero value is none. Hash is
// bcrypt's text, or salt and digest.
type PasswordHash struct {
	Algorithm HashAlgorithm
	Hash      string
}

// ScramKey is what the server keeps of a password for one SCRAM mechanism (RFC
// 5802 section 3). The slices are never changed.
type ScramKey struct {
	Mechanism  string // "SCRAM-SHA-256" or "SCRAM-SHA-512"
	Iterations int
	Salt       []byte
	StoredKey  []byte
	ServerKey  []byte
}

// Permission is what a user may do in a tenant: regular expressions over the
// names of exchanges, queues, topics and groups, which match anywhere in a name
// unless anchored. An empty one matches the empty name only.
type Permission struct {
	Tenant, User           string
	Configure, Write, Read string
}

// TopicPermission restricts the routing keys that a user may publish with to a
// topic exchange, and bind or subscribe with. {username}, {vhost} and
// {client_id} stand for the connection's. Without one every key is allowed.
type TopicPermission struct {
	Tenant, User, Exchange string
	Write, Read            string
}

// Act is what somebody wants to do to a resource.
type Act uint8

// The acts.
const (
	Configure Act = iota // make, change or delete it
	Write                // put messages into it
	Read                 // take messages out of it
)

// String returns the act's name.
func (a Act) String() string { return [...]string{"configure", "write", "read"}[a%3] }

// Acts is a set of acts.
type Acts uint8

// With returns the set with one more.
func (s Acts) With(a Act) Acts { return s | 1<<a }

// Has reports whether an act is in the set.
func (s Acts) Has(a Act) bool { return s&(1<<a) != 0 }

// AnyAct is the set of all acts.
const AnyAct = Acts(1<<Configure | 1<<Write | 1<<Read)

// DefaultExchangeResource is the name under which permissions know the default
// exchange, whose own name is empty.
const DefaultExchangeResource = "amq.default"
