# shellcheck shell=bash
# The applications of run.sh: each makes its tables by its own means and puts some rows into them.

pgbench_life() {
  make_database pgbench
  "$(pg_tool pgbench)" -i -q -s 1 --foreign-keys "$CROSSFADE_DSN" 2>/dev/null
  crossfade init
  refused public.pgbench_accounts aid bigint pgbench_history_aid_fkey
  life pgbench public.pgbench_accounts abalance bigint
  life pgbench public.pgbench_accounts bid bigint
  refused public.pgbench_history aid bigint no_usable_key
  life pgbench public.pgbench_tellers bid bigint
  # And while it works; the copy for the catalog needs a database without users, so this one is compared by its sums.
  heading "pgbench_tellers.tbalance becomes bigint under load"
  start_load
  printf '[migration]\nname = "live"\ntable = "public.pgbench_tellers"\n[[column]]\nname = "tbalance"\ntype = "bigint"\n%s' \
    $'[drop]\nsoak = "0s"\n' >"$work/spec.toml"
  crossfade start "$work/spec.toml" || die "the start was refused"
  reach live dropped --until dropped --confirm live
  stop_load
  [[ $(ask "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(tbalance) FROM pgbench_tellers)
    AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(delta) FROM pgbench_history)") == t ]] ||
    die "the sums of pgbench disagree"
  note "the sums of pgbench agree"
}

# auth, sessions, admin and contenttypes, made by their own migrations.
django_life() {
  make_database django
  mkdir -- "$work/django"
  cat >"$work/django/settings.py" <<'PYTHON'
import os
SECRET_KEY = 'for a test'
INSTALLED_APPS = ['django.contrib.' + app for app in ('contenttypes', 'auth', 'sessions', 'messages', 'admin')]
_dsn = dict(part.split('=', 1) for part in os.environ['CROSSFADE_DSN'].split())
DATABASES = {'default': {'ENGINE': 'django.db.backends.postgresql', 'NAME': _dsn['dbname'], 'USER': _dsn['user'],
                         'HOST': _dsn['host'], 'PORT': _dsn.get('port', '')}}
SILENCED_SYSTEM_CHECKS = ['admin.E403', 'admin.E408', 'admin.E409', 'admin.E410']  # there are no pages
DEFAULT_AUTO_FIELD = 'django.db.models.AutoField'
USE_TZ = True
PYTHON
  local django=(env "PYTHONPATH=$work/django" DJANGO_SETTINGS_MODULE=settings PYTHONDONTWRITEBYTECODE=1 "$python" -m django)
  "${django[@]}" migrate --verbosity 0
  "${django[@]}" shell -c "
from django.contrib.auth.models import User, Group
from django.contrib.admin.models import LogEntry
for i in range(300):
    user = User.objects.create(username='user%d' % i)
    user.groups.add(Group.objects.get_or_create(name='group%d' % (i % 7))[0])
    LogEntry.objects.create(user=user, object_id=str(i), object_repr='x', action_flag=1 + i % 3)"
  crossfade init
  refused public.auth_user id bigint auth_user_groups_user_id
  # Text holds names that the old column cannot: the switch drops its unique index, the way back builds it again.
  life django public.auth_user username text
  life django public.auth_user_groups id bigint 'ALTER SEQUENCE auth_user_groups_id_seq AS bigint'
  life django public.auth_user_groups user_id bigint
  life django public.auth_permission content_type_id bigint
  life django public.django_admin_log action_flag integer
  life django public.django_admin_log object_repr text
  # One of the three columns that refer to it is a bigint already, and stays as it is.
  follow=yes life django public.auth_user id bigint "ALTER SEQUENCE auth_user_id_seq AS bigint;
    ALTER TABLE auth_user_user_permissions ALTER COLUMN user_id TYPE bigint;
    ALTER TABLE django_admin_log ALTER COLUMN user_id TYPE bigint"
  "${django[@]}" migrate --check --verbosity 0
  "${django[@]}" shell -c "
from django.contrib.auth.models import User
assert User.objects.get(username='user7').groups.get().name == 'group0'
User.objects.create(username='later').groups.add(1)"
  note "Django works with it"
}

active_record_life() {
  make_database active_record
  mkdir -- "$work/migrate"
  cat >"$work/migrate/001_create_tables.rb" <<'RUBY'
class CreateTables < ActiveRecord::Migration[6.0]
  def change
    create_table :users, id: :integer do |t|
      t.string :email, null: false, limit: 80, index: { unique: true }
      t.timestamps
    end
    create_table :posts do |t|
      t.references :user, type: :integer, null: false, foreign_key: { on_delete: :cascade }
      t.string :title, limit: 120
      t.integer :views, null: false, default: 0, comment: 'how often it was read'
      t.decimal :price, precision: 10, scale: 2
      t.timestamps
    end
    create_table(:tags, id: :integer) { |t| t.string :name, null: false, index: true }
    create_join_table(:posts, :tags) { |t| t.index %i[post_id tag_id], unique: true }
  end
end
RUBY
  cat >"$work/migrate/002_add_indexes.rb" <<'RUBY'
class AddIndexes < ActiveRecord::Migration[6.0]
  disable_ddl_transaction!

  def change
    add_index :posts, %i[user_id views], order: { views: :desc }, algorithm: :concurrently
    add_index :posts, :views, where: 'views > 0'
    add_index :posts, 'user_id, (views + 1)', name: 'posts_by_user_and_next_view'
    reversible { |way| way.up { execute 'ALTER TABLE posts ADD CONSTRAINT views_count CHECK (views >= 0)' } }
  end
end
RUBY
  cat >"$work/application.rb" <<'RUBY'
require 'active_record'
part = ENV['CROSSFADE_DSN'].split.map { |word| word.split('=', 2) }.to_h
ActiveRecord::Base.establish_connection(adapter: 'postgresql', host: part['host'], port: part['port'],
                                        database: part['dbname'], username: part['user'])
ActiveRecord::Migration.verbose = false
ActiveRecord::Migrator.migrations_paths = [File.join(__dir__, 'migrate')]
ActiveRecord::Base.connection.migration_context.migrate
class User < ActiveRecord::Base; end
class Post < ActiveRecord::Base; belongs_to :user; end
class Tag < ActiveRecord::Base; end
200.times do |i|
  user = User.create!(email: "user#{i}@example.org")
  Post.create!(user: user, title: "post #{i}", views: i % 5, price: i)
  Tag.create!(name: "tag #{i}")
end
RUBY
  "$ruby" "$work/application.rb"
  crossfade init
  refused public.users id bigint fk_rails_
  life active_record public.posts views bigint
  follow=yes life active_record public.users id bigint "ALTER SEQUENCE users_id_seq AS bigint;
    ALTER TABLE posts ALTER COLUMN user_id TYPE bigint"
  life active_record public.posts price 'numeric(14,2)'
  life active_record public.users email text
  life active_record public.posts title text
  life active_record public.tags id bigint 'ALTER SEQUENCE tags_id_seq AS bigint'
  [[ $(ask "INSERT INTO tags (name) VALUES ('later') RETURNING id > 200") == t ]] || die "the sequence was lost"
}
